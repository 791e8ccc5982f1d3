/* local.h - the verbs that run penstock on one computer: up, down, status, doctor, devices, topics, config, init, demo. */
#ifndef PST_DEPLOY_LOCAL_H
#define PST_DEPLOY_LOCAL_H

#include "common/base/opt.h"

extern const pst_verb pst_up_verb, pst_down_verb, pst_status_verb, pst_doctor_verb, pst_devices_verb, pst_topics_verb, pst_config_verb,
    pst_init_verb, pst_demo_verb;

#endif
