"""A process of connections that say nothing, or a letter, and come again as soon as they are closed."""

import asyncio
import contextlib
import subprocess
import sys


@contextlib.contextmanager
def crowd(port, number=80, *, sent=b"", source="127.0.0.1"):
    """A crowd that is there as long as the block runs."""
    arguments = [sys.executable, __file__, str(port), str(number), sent.decode("latin-1"), source]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            yield
        finally:
            process.kill()


async def _stay(port, sent, source, there):
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            there.release()
            writer.write(sent)
            while await reader.read(1000):
                pass
            writer.close()


async def _come(port, number, sent, source):
    there = asyncio.Semaphore(0)
    staying = [asyncio.create_task(_stay(port, sent, source, there)) for _ in range(number)]
    for _ in range(number):
        await there.acquire()
    sys.stdout.write("there\n")
    sys.stdout.flush()
    await asyncio.gather(*staying)


if __name__ == "__main__":
    asyncio.run(_come(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode("latin-1"), sys.argv[4]))
