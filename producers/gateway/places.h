/* places.h - where a stream stands in Kafka: of each partition the offset that comes next. As text it is the id of an event, so that whoever has the
 * last one can go on, at any gateway: "penstock.logs/1/8;penstock.jobs.events/0:12/1:3;penstock.logs/0:5/1:9" is the record's own position, and
 * behind it, by topic, partition:next. */
#ifndef PST_PRODUCERS_GATEWAY_PLACES_H
#define PST_PRODUCERS_GATEWAY_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_place {
    char *topic;
    int32_t partition;
    int64_t next;
    int64_t from; /* of the hub's: the ring has what came from here on */
    int64_t high; /* of the hub's: the partition's end when it was opened */
    const char *kind;
} gw_place;

typedef struct gw_places { /* by topic and partition */
    gw_place *all;
    size_t n, room;
} gw_places;

enum { PST_PLACES_TEXT_MAX = 8 << 10 /* half of what a request's head may be */, PST_PLACES_MAX = 1024 };

gw_place *gw_places_find(const gw_places *v, const char *topic, int32_t partition); /* NULL: not there */
gw_place *gw_places_put(gw_places *v, const char *topic, int32_t partition);        /* found, or made with zeros; ends other pointers */
void gw_places_done(gw_places *v);
/* "topic/partition/offset" taken apart; free(*ret_topic). */
bool gw_places_record(const char *text, char **ret_topic, int32_t *ret_partition, int64_t *ret_offset);
/* The id of that record, which may be an id itself; without the rest where that is too long. free() */
char *gw_places_id(const gw_places *v, const char *record);
/* What an id says of places: false where it is none, or says nothing of them. */
bool gw_places_parse(const char *id, gw_places *ret);

#endif
