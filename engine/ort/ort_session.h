/* ort_session.h - what a model keeps of ONNX Runtime. Immutable once made. */
#ifndef PST_ENGINE_ORT_SESSION_H
#define PST_ENGINE_ORT_SESSION_H

#include "engine/ort/ort_lib.h"

typedef struct eng_ort {
    const ort_lib *lib;
    ort_session *session;
    char text[900]; /* what eng_ort_describe says */
} eng_ort;

#endif
