/** Where things lie in the memory; the same numbers as in `assembly/runtime/layout.ts`. */

const control = 0x10000;

/** Byte addresses of control words. */
export const controlWords: Readonly<
  Record<'generation' | 'done' | 'cancel' | 'job' | 'idlers' | 'minWork' | 'spins' | 'dotForm', number>
> = {
  generation: control,
  done: control + 64,
  cancel: control + 384,
  job: control + 512,
  idlers: control + 576,
  minWork: control + 640,
  spins: control + 768,
  dotForm: control + 832,
};

/** Values of the control word `dotForm`, as in `assembly/gemm/int8-dot.ts`. */
export const byteProductForms = { auto: 0, whole: 2, pairs: 3 } as const;

/** Books of the iq formats; iq1_m has that of iq1_s. */
export const gridAddresses: Readonly<Record<'iq2_xxs' | 'iq2_xs' | 'iq2_s' | 'iq3_xxs' | 'iq3_s' | 'iq1_s', number>> = {
  iq2_xxs: 0x4000,
  iq2_xs: 0x4800,
  iq2_s: 0x5800,
  iq3_xxs: 0x7800,
  iq3_s: 0x7c00,
  iq1_s: 0x8400,
};

/** First byte that the host may allocate. */
export const heapBase = 0x30000;

export const pageBytes = 0x10000;
export const maxThreads = 64;

/** Words of a job block: plan, scalars, shared scratch, scratch per thread, its bytes, profile. */
export const jobWords = 6;
/** Words of a plan entry: record, flags, six words for the kernel. */
export const planWords = 8;

/** Which word of a plan entry says how many records on the next product with packed weights is, plus 1; 0 where none is near. */
export const aheadWord = 7;

export const planFlags: Readonly<Record<'int8' | 'packed' | 'reuse' | 'free', number>> = {
  int8: 1,
  packed: 2,
  reuse: 4,
  free: 16,
};

/** Records without a barrier between them, at most. */
export const numCounters = 8;

/** Values of the cancel word. */
export const cancelJob = 1;
export const leave = 2;
