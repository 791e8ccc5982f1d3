/* avro_long.h - an int or long into room that its writer made beforehand, for who encodes a whole record at once. Any thread. */
#ifndef PST_SCHEMAS_AVRO_LONG_H
#define PST_SCHEMAS_AVRO_LONG_H

#include <stdint.h>

#define PST_AVRO_LONG_ROOM 10

/* Where there is room for PST_AVRO_LONG_ROOM bytes, of which more may be written than the number has; returns its end. */
char *pst_avro_write_long(char *to, int64_t v);

#endif
