/* foreign.h - files of other kinds that are given to us as models. Each gets a sentence that says what was seen and what to do, in place of a
 * parser's complaint about byte 7. @thread any. */
#ifndef PST_ENGINE_FOREIGN_H
#define PST_ENGINE_FOREIGN_H

#include <stddef.h>

/* By the bytes alone: "a Python pickle; …", or NULL when it is none of the known ones. Never a file that ONNX, XGBoost or LightGBM writes for
 * loading. */
const char *pst_foreign_kind(const void *data, size_t len);

#endif
