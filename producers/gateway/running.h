/* running.h - what runs of a pipeline that is to run, as its scorers told it last.
 *
 *     rc = scoring->pipelines(client, &list, &err);
 *     if (!rc) rc = gw_running_add(client, list, &err);
 *
 * @thread any; reads topics, and takes a moment. */
#ifndef PST_PRODUCERS_GATEWAY_RUNNING_H
#define PST_PRODUCERS_GATEWAY_RUNNING_H

#include "common/platform/client.h"
#include "producers/gateway/routes.h"

#include "common/base/json.h"

/* Gives each pipeline of the list (scoring.h) the members `running` and `serving`. Nothing is changed on failure but what was done already. */
int gw_running_add(pst_client *c, json_t *list, pst_err *err);

/* For the schemas of a noun: Running, Serving. */
#define GW_RUNNING_SCHEMAS                                                                                                                 \
    {"Running", GW_JSON({                                                                                                                  \
         "type" : "object",                                                                                                                \
         "description" :                                                                                                                   \
             "What its scorers told last, together. What nobody told is null. `absent`: no scorer was heard within ten minutes.",          \
         "required" : [ "state", "why", "scorers", "records_per_s", "lag" ],                                                               \
         "properties" : {                                                                                                                  \
             "state" : {"enum" : [ "running", "waiting", "paused", "silent", "absent" ]},                                                  \
             "why" : {"type" : [ "string", "null" ]},                                                                                      \
             "waits_for" : {"type" : [ "string", "null" ]},                                                                                \
             "model_version" : {"type" : [ "integer", "null" ]},                                                                           \
             "records_per_s" : {"type" : [ "number", "null" ], "description" : "sum over its scorers, like lag and the totals"},           \
             "lag" : {"type" : [ "number", "null" ], "description" : "records behind"},                                                    \
             "lag_seconds" : {"type" : [ "number", "null" ], "description" : "of the one that is furthest behind"},                        \
             "latency_p50_ms" : {"type" : [ "number", "null" ]},                                                                           \
             "latency_p99_ms" : {"type" : [ "number", "null" ]},                                                                           \
             "score_p10" : {"type" : [ "number", "null" ]},                                                                                \
             "score_p50" : {"type" : [ "number", "null" ]},                                                                                \
             "score_p90" : {"type" : [ "number", "null" ]},                                                                                \
             "scored_total" : {"type" : [ "number", "null" ]},                                                                             \
             "dead_letters_total" : {"type" : [ "number", "null" ]},                                                                       \
             "scorers" : {                                                                                                                 \
                 "type" : "array",                                                                                                         \
                 "items" : {                                                                                                               \
                     "type" : "object",                                                                                                    \
                     "properties" : {                                                                                                      \
                         "scorer" : {"type" : "string"},                                                                                   \
                         "host" : {"type" : "string"},                                                                                     \
                         "state" : {"type" : "string"},                                                                                    \
                         "seen_at" : {"type" : "integer", "format" : "int64", "description" : "microseconds since 1970"},                  \
                         "waits_for" : {"type" : [ "string", "null" ]},                                                                    \
                         "why" : {"type" : [ "string", "null" ]},                                                                          \
                         "model_refused" : {"type" : [ "string", "null" ]},                                                                \
                         "model_version" : {"type" : [ "integer", "null" ]}                                                                \
                     }                                                                                                                     \
                 }                                                                                                                         \
             }                                                                                                                             \
         }                                                                                                                                 \
     })},                                                                                                                                  \
    {                                                                                                                                      \
        "Serving", GW_JSON({                                                                                                               \
            "type" : "object",                                                                                                             \
            "description" : "A model version that scores: the primary's is what the scorers say, the others' what their alias names now.", \
            "required" : [ "role", "share" ],                                                                                              \
            "properties" : {                                                                                                               \
                "role" : {"enum" : [ "primary", "canary", "shadow" ]},                                                                     \
                "share" : {"type" : "number", "description" : "percent of the records; a shadow sees them beside the others"},             \
                "name" : {"type" : [ "string", "null" ]},                                                                                  \
                "alias" : {"type" : [ "string", "null" ]},                                                                                 \
                "version" : {"type" : [ "integer", "null" ]}                                                                               \
            }                                                                                                                              \
        })                                                                                                                                 \
    }

#endif
