"""The wall's clock jumps, forwards and back, under Trainer and LCM: grace times, deadlines and retries go by the time that passes. The jump is a library
that is loaded before them and shifts CLOCK_REALTIME for the program's own calls, not for the libraries', whose waits the kernel keeps by the true one."""
import datetime as dt
from kit import *

SHIM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *shift;
static uintptr_t lo, hi;
static int main_program(struct dl_phdr_info *i, size_t n, void *arg)
{
    (void)n, (void)arg;
    for (int k = 0; k < i->dlpi_phnum; k++)
        if (i->dlpi_phdr[k].p_type == PT_LOAD && (i->dlpi_phdr[k].p_flags & PF_X)) {
            lo = i->dlpi_addr + i->dlpi_phdr[k].p_vaddr;
            hi = lo + i->dlpi_phdr[k].p_memsz;
        }
    return 1; /* the first is the program */
}
__attribute__((constructor)) static void begin(void)
{
    int fd = open(getenv("CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
    void *at = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
    dl_iterate_phdr(main_program, NULL);
    if (at != MAP_FAILED)
        shift = at;
    close(fd);
}
int clock_gettime(clockid_t id, struct timespec *t)
{
    uintptr_t from = (uintptr_t)__builtin_return_address(0);
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (!rc && shift && id == CLOCK_REALTIME && from >= lo && from < hi)
        t->tv_sec += *shift;
    return rc;
}
"""


def begin(p):
    """Trainer and LCM with a clock of ours; returns what sets it."""
    cc, source, library, at = shutil.which("cc") or shutil.which("gcc"), p.dir / "shim.c", p.dir / "shim.so", p.dir / "shift"
    if not cc:
        skip("no C compiler to make a shifted clock with; Debian: apt-get install gcc")
    source.write_text(SHIM)
    subprocess.run([cc, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    at.write_bytes(struct.pack("q", 0))

    def jump(seconds):
        with open(at, "r+b") as f:
            f.write(struct.pack("q", seconds))
    env = {**p.env, "LD_PRELOAD": str(library), "CLOCK_SHIFT": str(at)}
    for name in ("trainer", "lcm"):
        p.spawn(name, log=f"{name}.log", env=env)
    return jump


def told_the_time(p, shifted):
    """Does the LCM's own log have the shifted hour? Else this test would test nothing."""
    return abs(dt.datetime.fromisoformat((p.dir / "lcm.log").read_text().splitlines()[-1].split()[0].rstrip("Z")).timestamp()
               - dt.datetime.now(dt.timezone.utc).replace(tzinfo=None).timestamp() - shifted) < 600


with Platform(without="trainer,lcm") as p:
    jump, marks = begin(p), p.dir / "marks"
    marks.mkdir()
    # an hour passes on the wall while a learner uses its grace time
    tid = p.submit(manifest("grace", f"trap 'echo x > {marks}/asked; sleep 4; echo x > {marks}/done; exit 0' TERM; while :; do sleep 0.1; done", extra="penstock: {grace: 2m, isolation: none}\n"))
    p.wait_state(tid, "PROCESSING")
    p.cli("halt", tid)
    until((marks / "asked").exists, 30, "the learner is not asked to end")
    jump(3600)
    p.wait_state(tid, "HALTED")
    check((marks / "done").exists(), "an hour on the wall's clock took the learner its grace time")
    # and two more while a job has a deadline of one
    tid = p.submit(manifest("deadline", "sleep 600", extra="penstock: {deadline: 1h}\n"))
    p.wait_state(tid, "PROCESSING")
    check(told_the_time(p, 3600), "the LCM's clock is not ours")
    jump(3 * 3600)
    for i in range(2):  # the Trainer decides, and its ticks pass
        p.wait_state(p.submit(manifest(f"after-{i}", "sleep 1.2")), "COMPLETED")
    check(p.show(tid)["state"] == "PROCESSING", f"a deadline of an hour after seconds: {p.show(tid)}")
    # a day back while a job waits for its next try
    again = p.submit(manifest("again", f"echo x >> {marks}/tries; exit 3", extra="penstock: {retries: 2}\n"))
    until(lambda: (marks / "tries").exists(), 30, "a first try")
    jump(-86400)
    p.wait_state(again, "FAILED")
    check((marks / "tries").read_text().count("x") == 3, "three tries, whatever the clock says")
    since = [p.show(again)[k] for k in ("submitted_at", "started_at", "ended_at")]
    check(since == sorted(since), f"a job's times go back: {since}")
    check(p.show(tid)["state"] == "PROCESSING", f"a day back: {p.show(tid)}")
    p.cli("terminate", tid, "--wait", ok=False)
print("ok: the wall's clock jumped an hour and three forwards and a day back; nobody lost a grace time, a deadline or a try")
