"""What a version guarantees, in words with its numbers."""

from streamtopic.pictures.markup import Markup, join, tag
from streamtopic.release import Release

__all__ = ["noise_warning", "promise_section"]


def promise_section(release: Release) -> Markup:
    """Return the facts of the guarantee, what it does not promise, and how to check it."""
    said, envelope = release.guarantee, release.envelope
    facts: list[tuple[str, object]] = [
        ("Promise", _promise(said.epsilon, said.delta, envelope.m)),
        ("Rests on", _basis(said.kind, covered=said.covered)),
        ("Forgotten since the base", f"{said.forgotten:,} documents, of {envelope.capacity:,} that the base bears"),
        ("All versions since the base", f"epsilon {said.cumulative_epsilon:.3g} together, at delta {said.delta:g}"),
        ("Noise", _noise(said.sigma, said.ratio)),
        ("Certificate", f"error of the topics at most {said.certificate:.2g}; {said.tolerance:g} was allowed"),
        ("Made by", f"{envelope.kind}; base: version {envelope.base}"),
    ]
    if said.kind == "theorem":
        facts = [fact for fact in facts if fact[0] != "Certificate"]
    listed = tag("dl", *(tag(*pair) for name, value in facts for pair in (("dt", name), ("dd", value))))
    return join(
        [
            tag("h2", "What this version guarantees", id="guarantee"),
            listed,
            tag(
                "p",
                "Unlearning is not privacy: who holds a version from before a deletion and one from after can compare "
                "them. The log and backups hold a document until they are compacted.",
                class_="soft",
            ),
            _checks(release.version),
        ],
        "\n",
    )


def _checks(version: int) -> Markup:
    verify, report = tag("code", "streamtopic verify"), tag("code", f"streamtopic report {version}")
    return tag("p", verify, " checks it against the log; ", report, " writes the evidence for an auditor.")


def _promise(epsilon: float, delta: float, documents: int) -> str:
    return (
        f"whoever sees this version cannot tell it, beyond epsilon {epsilon:g} and delta {delta:g}, from one learned "
        f"from the {documents:,} documents that remain and no others"
    )


def _basis(kind: str, *, covered: bool | None) -> str:
    if kind == "certified":
        return "a certificate computed for this version; no assumption on the corpus"
    held = {True: "all of which held", False: "which do not all hold, so nothing is promised", None: "not all checked"}
    return f"the paper's theorem and its assumptions, {held[covered]}"


def _noise(sigma: float, ratio: float) -> str:
    return f"sigma {sigma:.3g}" + (f"; its norm is {ratio:.2g} times the model's" if ratio else "")


def noise_warning(release: Release) -> Markup:
    """Return what a reader must know before anything else, where nothing but noise is to be seen; else nothing."""
    said = release.guarantee
    if not said.vacuous:
        return Markup("")
    text = f"The noise has {said.ratio:.3g} times the norm of the model: what is shown here is noise, not the model."
    return tag("p", text, class_="warning")
