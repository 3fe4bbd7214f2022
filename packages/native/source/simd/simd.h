/**
 * The verbs of a level: vectors of LANES f32 or i32 lanes, and 8-bit dot products. A kernel is one source over these verbs,
 * compiled once per level.
 */
#pragma once
#if defined(__AVX512VNNI__)
#include "avx512.h"
#else
#include "avx2.h"
#endif
