/* foreign.h - files of other kinds that are given to us as models. Each gets a sentence that says what was seen and what to do, in place of a
 * parser's complaint about byte 7. @thread any. */
#ifndef PST_ENGINE_FOREIGN_H
#define PST_ENGINE_FOREIGN_H

#include <stddef.h>

/* By the bytes alone: "a Python pickle; …", or NULL when it is none of the known ones. Never a file that ONNX, XGBoost or LightGBM writes for
 * loading. */
const char *eng_foreign_kind(const void *data, size_t len);
/* Text that is none of the kinds that models are written in: NULL, or what to say of it. Asked after all else, of what nobody has recognised: an
 * ONNX file has bytes below the space. */
const char *eng_foreign_text(const void *data, size_t len);

#endif
