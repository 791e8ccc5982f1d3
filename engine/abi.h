/* abi.h - what the public entries share for the sake of the ABI (engine/README.md). Not installed. Threads: any. */
#ifndef PST_ENGINE_ABI_H
#define PST_ENGINE_ABI_H

#include "common/base/err.h"

/* Words that a later version gives a meaning must be 0: a caller who sets one, or who hands in an uninitialised struct, gets an error. */
int eng_reserved_check(const uint64_t *words, size_t n, const char *what, pst_err *err);

#endif
