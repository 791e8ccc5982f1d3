/* letters.h - dead letters over HTTP, of a pipeline (pipelines.c) or of a topic (topics.c): the handlers, and what rows say of them. What is done is what
 * `penstock dlq` does (common/platform/scoring.h), with the same rules for what may be put back. */
#ifndef PST_PRODUCERS_GATEWAY_LETTERS_H
#define PST_PRODUCERS_GATEWAY_LETTERS_H

#include "producers/gateway/task.h"

/* By the path's {pipeline}, or its {topic}. */
void gw_letters_count(void *arg, pst_http_req *req);
void gw_letters_show(void *arg, pst_http_req *req); /* {topic}, {partition}, {offset} */
void gw_letters_replay(void *arg, pst_http_req *req);

#define GW_LETTER_TEXT GW_JSON({"type" : "string", "maxLength" : 300})
#define GW_LETTER_FILTERS                                                                                                 \
    {"reason", "query", GW_LETTER_TEXT, "those with this reason or exception class"},                                     \
        {"stage", "query", GW_JSON({"enum" : [ "DECODE", "MAP", "INFER", "ENCODE", "PRODUCE" ]}), "those of this stage"}, \
        {"source", "query", GW_LETTER_TEXT, "those that came from this topic"},                                           \
        {"partition", "query", GW_LETTER_TEXT, "P, P:O or P:O-O: this partition, this offset, or these with both ends"},  \
        {"since", "query", GW_LETTER_TEXT, "records of this time and later, or not older than this: 90min"},              \
    {                                                                                                                     \
        "until", "query", GW_LETTER_TEXT, "records before this time"                                                      \
    }
#define GW_LETTER_BY                                                                                               \
    {                                                                                                              \
        "by", "query", GW_LETTER_TEXT,                                                                             \
            "what is counted apart: source, partition, stage, reason, class, component, day, hour; commas between" \
    }
#define GW_LETTER_DRY                                                                                                  \
    {"to", "query", GW_LETTER_TEXT, "to this topic (partitions by key) instead of back where they came from"},         \
    {                                                                                                                  \
        "dry_run", "query", GW_JSON({"type" : "boolean", "default" : false}), "only tell what would be put back where" \
    }
#define GW_LETTER_SCHEMAS                                                                                                  \
    {"LetterKinds", GW_JSON({                                                                                              \
         "type" : "object",                                                                                                \
         "required" : ["kinds"],                                                                                           \
         "properties" : {                                                                                                  \
             "kinds" : {                                                                                                   \
                 "type" : "array",                                                                                         \
                 "items" : {                                                                                               \
                     "type" : "object",                                                                                    \
                     "required" : [ "topic", "count", "newest" ],                                                          \
                     "properties" : {                                                                                      \
                         "topic" : {"type" : "string"},                                                                    \
                         "count" : {"type" : "integer", "format" : "int64"},                                               \
                         "replayed" : {"type" : [ "integer", "null" ]},                                                    \
                         "newest" : {"type" : "object"}                                                                    \
                     }                                                                                                     \
                 }                                                                                                         \
             }                                                                                                             \
         }                                                                                                                 \
     })},                                                                                                                  \
    {                                                                                                                      \
        "LettersReplayed", GW_JSON({                                                                                       \
            "type" : "object",                                                                                             \
            "required" : ["topics"],                                                                                       \
            "properties" : {                                                                                               \
                "topics" : {                                                                                               \
                    "type" : "array",                                                                                      \
                    "items" : {                                                                                            \
                        "type" : "object",                                                                                 \
                        "required" : [ "topic", "dry_run", "matching", "replayed", "replayed_before", "left", "targets" ], \
                        "properties" : {                                                                                   \
                            "topic" : {"type" : "string"},                                                                 \
                            "dry_run" : {"type" : "boolean"},                                                              \
                            "matching" : {"type" : "integer"},                                                             \
                            "replayed_before" : {"type" : "integer"},                                                      \
                            "replayed" : {"type" : "integer"},                                                             \
                            "left" : {"type" : "integer", "description" : "cannot be put back"},                           \
                            "targets" : {"type" : "array", "items" : {"type" : "object"}}                                  \
                        }                                                                                                  \
                    }                                                                                                      \
                }                                                                                                          \
            }                                                                                                              \
        })                                                                                                                 \
    }
#define GW_NO_LETTERS                                                                                                 \
    {400, "a filter that cannot be read", GW_PROBLEM},                                                                \
        {403, "a right on the cluster that is missing, or a page of another origin", GW_PROBLEM},                     \
        {404, "there is no such pipeline or topic, or the topic holds no dead letters", GW_PROBLEM},                  \
        {409, "another replay of this topic has taken over, or the topic was made anew", GW_PROBLEM}, GW_TASK_FAILED, \
    {                                                                                                                 \
        0                                                                                                             \
    }
#define GW_LETTER_COUNTED                                                              \
    {                                                                                  \
        {200, "most frequent first", "application/json", "LetterKinds"}, GW_NO_LETTERS \
    }
#define GW_LETTER_REPLAYED                                                                             \
    {                                                                                                  \
        {200, "what went where, and what stays", "application/json", "LettersReplayed"}, GW_NO_LETTERS \
    }
#endif
