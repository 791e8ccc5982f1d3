/* properties.h - Java's properties files as Kafka's clients have them: key=value or key:value a line, # and ! comments, a backslash at the end
 * joins lines, space around keys and values does not count. Other escapes of Java's are not known: a backslash stands for itself.
 *
 *     pst_properties_parse(text, len, "client.properties", take, &settings, &err);
 *
 * @thread any */
#ifndef PST_BASE_PROPERTIES_H
#define PST_BASE_PROPERTIES_H

#include "common/base/buf.h"
#include "common/base/err.h"

/* origin: "client.properties:3", where the entry begins. Texts are borrowed for the call. */
typedef void (*pst_property_fn)(void *arg, const char *key, const char *value, const char *origin);
/* PST_EINVAL with file and line for a line that is none of these, or that holds a NUL: nothing behind it would be seen. */
int pst_properties_parse(const char *text, size_t len, const char *file, pst_property_fn take, void *arg, pst_err *err);

#endif
