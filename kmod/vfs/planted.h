/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What tests break and look at (kmod/build --planted-faults), by parameters of the module. Elsewhere all of it is nothing. */
#ifndef TIFFIN_KMOD_PLANTED_H
#define TIFFIN_KMOD_PLANTED_H

#ifdef TIFFIN_PLANTED_FAULTS

/* keeps_promises: promised room is not given back. */
extern bool tiffin_keeps_promises;
/* leaks_mounts: the memory of a mount is not released. */
extern bool tiffin_leaks_mounts;
/* The error that a call of this operation fails with instead of being made, or 0: the call with number fail_after, from when
 * that was set, of the one that is named by fail_operation fails with fail_error. fail_after is 0 from then on. */
long tiffin_planted_error(const char* operation);
/* hold_flush: 1 holds the next flush back, which makes it 2, until it is 0; the flush then makes it 3 and fails with what this
 * returns, once. */
int tiffin_planted_flush(void);
/* Between two steps: at the place that is named by delay_at a thread sleeps, each time for up to delay_ms. `delays` counts. */
void tiffin_race_point(const char* place);
/* measure_stack: around each operation; deepest_stack has the result. */
bool tiffin_planted_enter(void); /* whether it is measured */
void tiffin_planted_leave(bool is_measured);
/* How many inodes in memory say something else than the file system. The kernel's log says which. */
struct super_block;
long tiffin_compare_inodes(struct super_block* sb);

#else

#define tiffin_keeps_promises false
#define tiffin_leaks_mounts false
#define tiffin_planted_error(operation) 0L
#define tiffin_planted_flush() 0
#define tiffin_race_point(place) ((void)0)
#define tiffin_planted_enter() false
#define tiffin_planted_leave(is_measured) ((void)(is_measured))

#endif

#endif
