/* ort_plan.h - plans that run in ONNX Runtime, as a backend. */
#ifndef PST_ENGINE_ORT_PLAN_H
#define PST_ENGINE_ORT_PLAN_H

#include "engine/backend.h"

extern const eng_backend eng_ort_backend;

#endif
