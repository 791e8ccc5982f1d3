/* codec.h - events ↔ record values: framing, schema ids by the registry, plans cached by id, JSON text where people may publish by hand.
 *
 *     pst_job_request r;
 *     rc = pst_codec_decode(codec, &pst_job_request_type, rec->value, rec->value_len, rec->timestamp_ms, &r, &err);
 *     …
 *     pst_event_clear(&pst_job_request_type, &r);
 *
 * Class RETRY = the registry is away: keep the record and ask again; DATA = this record is bad. @thread any (one lock inside). */
#ifndef PST_COMMON_PLATFORM_CODEC_H
#define PST_COMMON_PLATFORM_CODEC_H

#include "common/registry/registry.h"
#include "schemas/avro.h"
#include "schemas/events.h" /* generated: structs, descriptors, enums of all *.avsc */
#include "schemas/topics.h"

typedef struct pst_codec pst_codec;

pst_codec *pst_codec_new(pst_registry *registry); /* borrowed */
void pst_codec_free(pst_codec *c);
/* Frames and appends. The schema is registered under <topic>-value at first use (id cached for ever). */
int pst_codec_encode(pst_codec *c, const pst_type *type, const char *topic, const void *event, pst_buf *out, pst_err *err);
/* First byte 0: Avro by the writer's schema; '{': JSON text, only for JobRequest, ModelEvent, PipelineSpec, QueueSpec (a `time` of 0 takes the
 * record's timestamp). NULL value is PST_EINVAL/DATA: tombstones are the caller's. */
int pst_codec_decode(pst_codec *c, const pst_type *type, const void *value, size_t len, int64_t timestamp_ms, void *ret_event,
                     pst_err *err);
/* Of a record that could not be decoded, for who reads a topic in order: is it the record's fault? A registry may hear of an id later than we do: "not known" is
 * believed after three tries, and from then on for a minute at once, so that rubbish does not hold up what follows it. *unknown_us: the reader's, 0 to
 * begin with. */
bool pst_codec_unusable(int64_t *unknown_us, const pst_err *why, int tries);
/* Parsed writer schema by id, cached for ever, owned by c. */
int pst_codec_schema(pst_codec *c, int32_t id, const pst_schema **ret_schema, pst_err *err);
/* Any framed value → JSON (cat, SSE); text that is JSON already is parsed. ret_id -1 when not Avro. */
int pst_codec_to_json(pst_codec *c, const void *value, size_t len, json_t **ret_json, int32_t *ret_id, pst_err *err);
/* The same for services that read what anybody writes: within about room bytes of memory, else PST_ELIMIT/DATA. */
int pst_codec_to_json_within(pst_codec *c, const void *value, size_t len, size_t room, json_t **ret_json, int32_t *ret_id, pst_err *err);

#endif
