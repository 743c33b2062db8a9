/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How deep the stacks of the core's threads become. */
#include "stack_depth.h"

#include "kernel_services.h"

static atomic_t deepest_bytes = ATOMIC_INIT(0);

void tiffin_stack_depth_begin(void) { tiffin_paint_stack(); }

void tiffin_stack_depth_end(void) { tiffin_measure_stack(&deepest_bytes); }

size_t tiffin_deepest_stack_bytes(void) { return atomic_read(&deepest_bytes); }
