/* bus_places.c - lists of places: partitions with an offset, a note and what came of them. Short, so looking one up walks. */
#include "common/bus/bus_internal.h"
#include "common/base/array.h"

#include <stdlib.h>
#include <string.h>

bus_places *bus_places_new(void)
{
    return pst_alloc(sizeof(bus_places));
}

static void clear(bus_places *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->at[i].topic);
        free(list->at[i].note);
    }
    free(list->at);
    *list = (bus_places){0};
}

void bus_places_free(bus_places *list)
{
    if (!list)
        return;
    clear(list);
    free(list);
}

void bus_members_done(bus_members *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->instances[i]);
    free(m->instances);
    clear(&m->given);
    *m = (bus_members){0};
}

bus_place *bus_places_add(bus_places *list, const char *topic, int32_t partition)
{
    list->at = pst_array_room(list->at, list->n, &list->cap, sizeof *list->at);
    bus_place *p = &list->at[list->n++];
    *p = (bus_place){.topic = pst_strdup(topic), .partition = partition, .offset = BUS_OFFSET_NONE};
    return p;
}

bus_place *bus_places_find(const bus_places *list, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].partition == partition && !strcmp(list->at[i].topic, topic))
            return &list->at[i];
    return NULL;
}

bus_places *bus_places_copy(const bus_places *list)
{
    bus_places *copy = bus_places_new();
    for (size_t i = 0; i < list->n; i++) {
        const bus_place *from = &list->at[i];
        bus_place *to = bus_places_add(copy, from->topic, from->partition);
        to->offset = from->offset;
        to->note = pst_strdup(from->note);
        to->code = from->code;
    }
    return copy;
}

int bus_places_code(const bus_places *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].code)
            return list->at[i].code;
    return 0;
}

int bus_committed(bus_link l, bus_places *list, int timeout_ms)
{
    int code = l.lib->common->committed(l.h, list, timeout_ms);
    return code ? code : bus_places_code(list);
}
