"""Programs that are killed, stopped and started again, and that end with this program, however it ends."""

import contextlib
import signal
import subprocess
import threading

# Reads "+PID" and "-PID". At the end of its input it kills the programs that are left. The input ends when this program
# ends, even by SIGKILL, which no handler in this program could see.
_GUARD = """
left=" "
while read -r line; do
  case $line in
    +*) left="$left${line#+} " ;;
    -*) left="${left%% ${line#-} *} ${left#* ${line#-} }" ;;
  esac
done
for pid in $left; do kill -KILL "$pid" 2>/dev/null; done
"""


class Guard:
    """Kills the programs given to it when this program ends, even if it is killed."""

    def __init__(self):
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            # An interrupt at the terminal goes to the whole group, and the guard must outlive it.
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, at):
        with contextlib.suppress(OSError):
            self._shell.communicate(timeout=10)

    def watch(self, pid):
        """Kill this program at the end."""
        self._say(f"+{pid}")

    def forget(self, pid):
        """Leave this program alone: it has ended, and its number may become that of another program."""
        self._say(f"-{pid}")

    def _say(self, line):
        with self._lock:
            if self._shell.stdin is not None and self._shell.poll() is None:
                self._shell.stdin.write(line + "\n")
                self._shell.stdin.flush()


class Worker:
    """One program, started as often as faults need it; its output is appended to a file.

    name: of the program, for findings.
    deaths: exit statuses of ends that no fault asked for.
    lock: held by a fault while it does something to the program.
    """

    def __init__(self, name, command, output, guard, environment):
        self.name = name
        self.deaths = []
        self._command = list(command)
        self.output = output
        self._guard = guard
        self._environment = dict(environment)
        self._process = None
        self._stopped = False
        self.lock = threading.RLock()

    @property
    def running(self):
        """Whether it was started, and not ended by this object."""
        return self._process is not None

    def start(self):
        """Start it unless it runs. An end of its own is noted first."""
        with self.lock:
            self.check()
            if self._process is not None:
                return
            with self.output.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment,
                    start_new_session=True,
                )
            self._guard.watch(self._process.pid)

    def check(self):
        """Note the exit status if the program ended by itself."""
        with self.lock:
            if self._process is not None and (status := self._process.poll()) is not None:
                self.deaths.append(status)
                self._gone()

    def kill(self):
        """End it with SIGKILL, suspended or not."""
        self._end(signal.SIGKILL, 30)

    def terminate(self, seconds=30):
        """Ask it to end, and return its exit status; None if it did not run, or had to be killed after `seconds`."""
        # A suspended process would not see the signal.
        self.resume()
        return self._end(signal.SIGTERM, seconds)

    def suspend(self):
        """Suspend it: the other processes take it for dead, and it does not notice that time passes."""
        with self.lock:
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGSTOP)
                self._stopped = True

    def resume(self):
        """Let it continue."""
        with self.lock:
            if self._process is not None and self._stopped:
                self._process.send_signal(signal.SIGCONT)
            self._stopped = False

    def tail(self, lines=20):
        """Return the last lines of its output."""
        text = self.output.read_text("utf-8", "replace") if self.output.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _end(self, how, seconds):
        with self.lock:
            self.check()
            if self._process is None:
                return None
            self._process.send_signal(how)
            try:
                status = self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                status = None
            self._gone()
            return status

    def _gone(self):
        if self._process is not None:
            self._guard.forget(self._process.pid)
        self._process, self._stopped = None, False
