/**
 * Where things lie in the shared memory. The host's `src/layout.ts` holds the same numbers; a test compares them.
 *
 * [0, 16 KiB)        constants of this module
 * [16 KiB, 49 KiB)   books of the iq formats, written by the host
 * [64 KiB, 128 KiB)  control words: one cache line per word that threads fight over
 * [128 KiB, 192 KiB) one frame of 1 KiB per thread: the tensors of the record it works on
 * [192 KiB, ...)     what the host allocates
 */
export const IQ2_XXS_GRID: usize = 0x4000; // 256 vectors of 8 bytes
export const IQ2_XS_GRID: usize = 0x4800; // 512 of 8
export const IQ2_S_GRID: usize = 0x5800; // 1024 of 8
export const IQ3_XXS_GRID: usize = 0x7800; // 256 of 4
export const IQ3_S_GRID: usize = 0x7c00; // 512 of 4
export const IQ1_GRID: usize = 0x8400; // 2048 of 8
export const CONTROL: usize = 0x10000;
export const FRAMES: usize = 0x20000;
export const FRAME_BYTES: usize = 1024;

// control words, byte offsets
export const GENERATION: usize = CONTROL; // number of the job that may run
export const DONE: usize = CONTROL + 64; // number of the job that ended last
export const ARRIVED: usize = CONTROL + 128; // threads at the barrier
export const PHASE: usize = CONTROL + 192; // barriers passed
export const SLEEPERS: usize = CONTROL + 256; // threads asleep at the barrier
export const CANCEL: usize = CONTROL + 384; // set by the host: 1 cancel the job, 2 leave
export const STOP: usize = CONTROL + 448; // the cancel word as all threads saw it at the last barrier
export const JOB: usize = CONTROL + 512; // address of the job block, first record, end record
export const IDLERS: usize = CONTROL + 576; // threads asleep between jobs

export const MIN_WORK: usize = CONTROL + 640; // rough number of steps below which a record runs on one thread
export const GATHERING: usize = CONTROL + 704; // whether thread 0 sleeps until all others arrived
export const SPINS: usize = CONTROL + 768; // loads of a word that another thread is to change, before going to sleep
export const DOT_FORM: usize = CONTROL + 832; // how dot products of bytes are formed, 0 where the machine is to say; see int8-dot.ts
export const NEXT_UNIT: usize = CONTROL + 1024; // next unit of work, one counter for each record since the last barrier
export const COUNTER_BYTES: usize = 64;
export const NUM_COUNTERS: usize = 8;

// job block, byte offsets from its address
export const JOB_PLAN: usize = 0; // plan entries, PLAN_BYTES each
export const JOB_SCALARS: usize = 4;
export const JOB_SHARED: usize = 8; // scratch that all threads see
export const JOB_LOCAL: usize = 12; // scratch per thread
export const JOB_LOCAL_BYTES: usize = 16;
export const JOB_PROFILE: usize = 20; // f64 milliseconds per record, or 0

/** Plan entry: address of the record's words, flags, six words for the kernel. */
export const PLAN_BYTES: usize = 32;
export const PLAN_RECORD: usize = 0;
export const PLAN_FLAGS: usize = 4;
export const PLAN_AUX: usize = 8;
/** Which word for the kernel says how many records on the next product with packed weights is, plus 1; 0 where none is near. */
export const AUX_AHEAD: i32 = 5;

// plan flags
export const FLAG_INT8: u32 = 1; // activations as 8-bit integers
export const FLAG_PACKED: u32 = 2; // weight rows interleaved by four
export const FLAG_REUSE: u32 = 4; // the scratch of the record before holds this input already
export const FLAG_FREE: u32 = 16; // needs nothing of the record before, so no barrier after it
