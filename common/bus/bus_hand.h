/* bus_hand.h - a thread for calls of librdkafka that may not come back: one at a time, waited for as long as one likes, left to itself when it is late. */
#ifndef PST_BUS_HAND_H
#define PST_BUS_HAND_H

#include <stdbool.h>

typedef struct bus_hand bus_hand;

bus_hand *bus_hand_new(void); /* NULL: there is no thread to be had */
/* Makes *h on first use. False: there is no thread to be had now. */
bool bus_hand_need(bus_hand **h);
/* Runs fn(arg) on the thread; the call before has come back. */
void bus_hand_start(bus_hand *h, void (*fn)(void *arg), void *arg);
/* Has it come back? Waits at most timeout_ms; when told to stop twice, until it has had 1 s. */
bool bus_hand_wait(bus_hand *h, int timeout_ms);
/* The same, and calls meanwhile(arg) five times a second. */
bool bus_hand_wait_doing(bus_hand *h, int timeout_ms, void (*meanwhile)(void *arg), void *arg);
/* Does not wait: a call that has not come back goes on alone, and then fn owns arg. NULL-safe. */
void bus_hand_free(bus_hand *h);

#endif
