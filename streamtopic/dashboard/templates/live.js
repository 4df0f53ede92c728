// Keeps a page up to date: parts that changed are replaced, so that focus, scrolling and forms stay as they are.
"use strict";

const root = document.documentElement;
const seconds = Number(root.dataset.live);
const told = document.getElementById("told");

function replaced(part, fresh) {
  // Whoever reads in a part with the keyboard must not lose the place.
  if (part.contains(document.activeElement) || part.outerHTML === fresh.outerHTML) {
    return false;
  }
  const next = document.importNode(fresh, true);
  part.replaceWith(next);
  if (part.id !== "read-at") {
    next.classList.add("fresh");
  }
  return "tell" in part.dataset;
}

async function update() {
  const answer = await fetch(location.pathname, { headers: { accept: "text/html" }, redirect: "error" });
  if (!answer.ok) {
    throw new Error(String(answer.status));
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const news = [];
  for (const part of document.querySelectorAll("[data-part]")) {
    const other = part.id && fresh.getElementById(part.id);
    if (other && replaced(part, other)) {
      news.push(other.textContent.trim().replace(/\s+/g, " "));
    }
  }
  root.classList.remove("stale");
  // A reader of the screen hears of what matters, and not of each number.
  told.textContent = news.join(" ");
}

async function keep() {
  if (!document.hidden) {
    try {
      await update();
    } catch {
      root.classList.add("stale");
      told.textContent = "The page could not be brought up to date: it shows what was read last.";
    }
  }
  setTimeout(keep, 1000 * seconds);
}

setTimeout(keep, 1000 * seconds);
