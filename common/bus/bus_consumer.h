/* bus_consumer.h - the consumer's state, shared by bus_consumer.c (polling, committing), bus_assign.c (partitions), bus_place.c (positions, marks),
 * bus_pause.c (who gives nothing for now), bus_wait.c (waits for the coordinator), bus_quiet.c (nothing comes) and bus_peers.c (other members). */
#ifndef PST_BUS_CONSUMER_H
#define PST_BUS_CONSUMER_H

#include "common/bus/bus_internal.h"

typedef struct bus_wait { /* one wait for the coordinator; begins as {.what = …} */
    const char *what;
    const bus_places *about; /* NULL = what is assigned */
    int64_t begun_us, reported_us;
    int own_fault; /* how often in a row others were answered */
} bus_wait;

#define BUS_PEERS_MAX 16

struct pst_consumer {
    bus_health health;
    pst_bus_conf *conf;
    pst_consumer_opts opts; /* group, topics, ranges and instance_id are ours */
    char *group;            /* NULL = none */
    bus_link link;
    bus_part *parts;
    size_t n_parts, last_part;
    pst_record *records; /* of the last poll, until they are released */
    size_t n, cap, bytes;
    uint64_t epoch;
    int64_t check_us; /* when bus_check_ranges looks again */
    bool checked;     /* all ranges are of partitions that exist */
    unsigned resets;  /* health.resets when last looked at */
    bool assigned, paused, lost, closing;
    bool serving;           /* the records of the last poll are in use while the group is served */
    bool stands;            /* everything is paused in the client; unless the owner wants it so, the next poll resumes it */
    bool changing;          /* inside the client's poll: a rebalance is being answered */
    int64_t polled_us;      /* when the client was polled last */
    int64_t paused_us;      /* since when nothing flows */
    int64_t rest_us;        /* one partition flows, the others follow then at the latest; 0 = all do */
    int64_t turn_us;        /* when a partition had its turn and gave nothing */
    bool leaves;            /* a static member that is to leave the group at its end */
    bool round;             /* a transaction is open over what was handed out */
    const char *spoiled;    /* why the open round cannot be committed; NULL = it can */
    int64_t release_us;     /* when the first partition that is held goes on; 0 = none is held */
    int64_t start_check_us; /* when bus_check_start looks again */
    bus_wait start_wait;
    int quiet_ms;               /* heard nothing of a partition for so long: the broker is asked for its end; for tests */
    struct bus_hand *look_hand; /* asks */
    struct bus_look *look;      /* what it asks; NULL = nothing */
    int64_t quiet_check_us;     /* when bus_check_quiet looks again */
    int64_t quiet_reported_us;  /* when it was last said that nothing comes; 0 = it flows */
    uint64_t peers_epoch;       /* 1 + the epoch in which offsets that are held back were last looked for; 0 = none */
    struct bus_hand *peers_hand;
    char *heirlooms[BUS_PEERS_MAX]; /* under which names our partitions' last offsets were committed */
    size_t n_heirlooms;
    struct bus_hand *count_hand;
    struct bus_count *count; /* of the group's partitions; NULL = none is under way */
    int64_t count_us;        /* when the next one is due; 0 = it has not joined yet */
    int undecided;           /* counts that showed nothing */
    int short_times;         /* counts in a row that found partitions which nobody has */
    bool counted;            /* all is well, or it was opened again for it */
    char *signature;         /* goes with each offset that is committed: the transactional id; NULL = none */
};

bus_part *bus_part_find(pst_consumer *c, const char *topic, int32_t partition);
bus_part *bus_part_add(pst_consumer *c, const char *topic, int32_t partition);
void bus_part_remove(pst_consumer *c, const char *topic, int32_t partition);
void bus_parts_clear(pst_consumer *c);
void bus_rebalance(void *consumer, bus_change change, bus_places *list, bool incremental); /* of bus_listener */
int bus_assign_all(pst_consumer *c, pst_err *err);                                         /* without a group */
void bus_check_ranges(pst_consumer *c);                                                    /* without a group, while nothing comes */
void bus_consumer_news(pst_consumer *c, const bus_run *run);                               /* an end or a fault */
void bus_consumer_release(pst_consumer *c);                                                /* partitions that were held long enough go on */
int bus_seek_one(pst_consumer *c, const bus_part *p, int64_t offset, pst_err *err);        /* the client's position alone; fails: astray */

int bus_pause(pst_consumer *c, const bus_part *p, bool pause); /* one partition, if it is not as it should be; a code */
int bus_pause_all(pst_consumer *c);                            /* what flows; a code */
void bus_flow(pst_consumer *c); /* at each poll: what stood still because the thread waited, or because another had its turn, goes on */

/* Partitions with nothing committed begin at `latest` or a time: looked up, and committed. Fills in offsets. PST_EFENCED, RETRY: the group has gone on. */
int bus_start_places(pst_consumer *c, bus_places *list, pst_err *err);
void bus_start_noted(bus_part *p, const bus_place *tp);
void bus_start_note(pst_consumer *c, bus_places *list); /* what goes with each offset that is committed */
int bus_consumer_commit(pst_consumer *c, const bus_places *offsets, pst_err *err);

char *bus_note_by(const bus_place *tp); /* who committed it; free(), NULL = it does not say */
/* Does this note tell that the group reads that partition of its topic from the first record on, while nothing is committed there? */
bool bus_note_reads_all(const bus_place *tp, int32_t partition);

/* Is every one of these offsets told (0)? stable: also if an open transaction holds some of them back. *ret (may be NULL): what is committed. */
int bus_group_offsets(const pst_bus_conf *conf, const char *group, const bus_places *of, bool stable, bus_places **ret, pst_err *err);
/* Partitions were given to us, and nothing of them was read yet: who had them before? */
void bus_peers_inherit(pst_consumer *c, const bus_places *list);
/* Ends what those left open, if they have left the group, and what holds back these offsets (NULL = none). Does not wait. */
void bus_peers_end(pst_consumer *c, const bus_places *pending);
void bus_check_peers(pst_consumer *c); /* at each poll, in a group */
typedef enum bus_membership { BUS_NO_MEMBER, BUS_MEMBER, BUS_MEMBER_PERHAPS /* nobody answered */ } bus_membership;
/* Does the group count our instance id among its members? Asks the broker, for seconds at most. */
bus_membership bus_peers_has_us(const pst_consumer *c);
void bus_peers_done(pst_consumer *c);
void bus_check_growth(pst_consumer *c); /* at each poll, in a group: have its members all partitions there are? */
void bus_growth_done(pst_consumer *c);

#define BUS_STEP_MS 2000 /* one blocking question to the broker; repeated while it is away */
/* The question was answered by `code`: 0 ask again (it has waited a moment), < 0 give up. */
int bus_wait_more(pst_consumer *c, bus_wait *w, int code, pst_err *err);
void bus_wait_over(pst_consumer *c, bus_wait *w);
/* Partitions that were assigned before that time and have given nothing yet. */
bus_places *bus_consumer_unbegun(const pst_consumer *c, int64_t before_us);
void bus_check_start(pst_consumer *c); /* in a group: says what holds partitions up while nothing comes, and when that is over */
/* The same, of partitions that have begun and of a broker that is mute; a consumer that is stuck is astray. */
void bus_check_quiet(pst_consumer *c);
void bus_quiet_tell(pst_consumer *c, const char *why); /* it waits: said now and then, and told whoever asked for it */
bool bus_quiet_is_mute(pst_consumer *c);               /* a question is under way, and not answered in a moment */
bool bus_quiet_done(pst_consumer *c); /* waits for a question that is under way; false: it still is, and its client must stay */
void bus_quiet_over(pst_consumer *c); /* it does not any more */

#endif
