/* manifest_keys.h - every key of a manifest, FfDL's and ours, with its limits, default and meaning: what the readers go by, and what
 * docs/reference/manifest.md is printed from. @thread any. */
#ifndef PST_SCHEMAS_MANIFEST_KEYS_H
#define PST_SCHEMAS_MANIFEST_KEYS_H

#include "common/base/keys.h"

/* The section of the keys at the top is "", that of the built-in learner's settings "penstock.learner". */
extern const pst_keys pst_manifest_keys;

extern const char *const av_learn_missing_words[]; /* in the order of pst_learn_missing */
extern const char *const av_learn_unknown_words[]; /* in the order of pst_learn_unknown */
extern const char *const av_activation_words[];    /* in the order of pst_activation */

#endif
