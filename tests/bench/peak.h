/* peak.h - what this core can do, measured: float32 multiply-adds in registers, and with operands from L1, at each instruction set.
 *
 *     pst_peak p = pst_peak_measure("avx2");      // p.registers, p.l1 in GFLOP/s; 0 when the CPU lacks it
 *
 * CPU time, best of many: other programs on the computer cost little. @thread any */
#ifndef PST_TESTS_BENCH_PEAK_H
#define PST_TESTS_BENCH_PEAK_H

typedef struct pst_peak {
    double registers; /* GFLOP/s of independent multiply-add chains */
    double l1;        /* GFLOP/s of a register tile fed from L1, as a matrix product is */
} pst_peak;

pst_peak pst_peak_measure(const char *isa);
/* One sample of the registers' figure (about 40 µs), to be taken between the runs of what is compared with it: the clock of a core changes
 * within seconds. The CPU must have the instruction set. */
double pst_peak_sample(const char *isa);
double pst_cpu_ns(void); /* CPU time of the process: threads that a library starts behind our back count, other programs do not */

#endif
