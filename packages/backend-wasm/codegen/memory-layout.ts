/**
 * The layout of the shared memory, for the host and the kernels:
 *
 * [0, 16 KiB)        constants of the module
 * [16 KiB, 49 KiB)   codebooks of the iq formats, written by the host
 * [64 KiB, 128 KiB)  control words: one cache line per word that threads contend for
 * [128 KiB, 192 KiB) one frame of 1 KiB per thread: the operands of its current record
 * [192 KiB, ...)     what the host allocates
 *
 * and the other numbers on which they must agree.
 */
import './sources.ts';

const { repackedDTypes, ropeEntryBytes } = await import('../src/kernels/kernel-traits.ts');
const {
  maxExponent,
  maxGlobals,
  maxInvariantTokens,
  maxPageExponent,
  neuronGroup,
  normMargin,
  recordWords,
  tensorWords,
} = await import('@winnow/ops');

/** A named constant: host name, value, and description. */
type Entry = readonly [name: string, value: number, doc?: string];

export interface Section {
  /** Name of the host's object; without one, every entry is a separate constant. */
  readonly host?: string;
  /** Whether only kernels need it. */
  readonly kernelsOnly?: boolean;
  readonly doc?: string;
  /** Type in kernels. */
  readonly type: 'usize' | 'i32' | 'u32' | 'f64';
  /** Prefix and suffix of the names in kernels. */
  readonly prefix?: string;
  readonly suffix?: string;
  readonly entries: readonly Entry[];
}

const control = 0x10000;
const frames = 0x20000;
const maxThreads = 64;
/** Steps per pass of the arithmetic probes. */
export const probeSteps = 8;
/** Room for the operands of the widest op, and for the task of a native kernel. */
const frameBytes = 1024;

const gridAddresses: Section = {
  host: 'gridAddresses',
  doc: 'Codebooks of the iq formats; iq1_m shares that of iq1_s.',
  type: 'usize',
  suffix: '_GRID',
  entries: [
    ['iq2_xxs', 0x4000, '256 vectors of 8 bytes'],
    ['iq2_xs', 0x4800, '512 vectors of 8 bytes'],
    ['iq2_s', 0x5800, '1024 vectors of 8 bytes'],
    ['iq3_xxs', 0x7800, '256 vectors of 4 bytes'],
    ['iq3_s', 0x7c00, '512 vectors of 4 bytes'],
    ['iq1_s', 0x8400, '2048 vectors of 8 bytes'],
  ],
};

const controlWords: Section = {
  host: 'controlWords',
  doc: 'Byte addresses of control words.',
  type: 'usize',
  entries: [
    ['generation', control, 'number of the job to run'],
    ['done', control + 64, 'number of the last finished job'],
    ['arrived', control + 128, 'threads at the barrier'],
    ['phase', control + 192, 'barriers passed'],
    ['sleepers', control + 256, 'threads asleep at the barrier'],
    ['cancel', control + 384, 'set by the host: 1 cancels the job, 2 ends the workers'],
    ['stop', control + 448, 'the cancel word at the last barrier, the same for all threads'],
    ['job', control + 512, 'address of the job block, first record, end record'],
    ['idlers', control + 576, 'threads asleep between jobs'],
    ['minWork', control + 640, 'estimated number of steps below which a record runs on one thread'],
    ['gathering', control + 704, 'whether thread 0 sleeps until all others have arrived'],
    ['spins', control + 768, 'how often a thread polls a word that another thread will change before it sleeps'],
    ['int8Dot', control + 832, 'which int8 dot product the kernels use; see `int8Dots`'],
    [
      'nativeOff',
      control + 896,
      'whether some thread lacks native kernels, so that all threads run those of this module',
    ],
    ['nativeRecords', control + 960, 'number of records that native kernels computed'],
    ['nextItem', control + 1024, 'next work item, one counter for each record since the last barrier'],
  ],
};

const int8Dots: Section = {
  host: 'int8Dots',
  doc: 'How 8-bit products are summed. The host cannot request `usdot`, which is exact only on some machines.',
  type: 'i32',
  prefix: 'INT8_DOT_',
  entries: [
    ['auto', 0, 'the fastest on this machine'],
    ['usdot', 1, 'unsigned by signed, four products per sum'],
    ['generic', 2, 'products of 7-bit and 8-bit integers, exact on every machine'],
    ['maddubs', 3, 'sums of two products in 16 bits, which saturate (SSE, AVX2)'],
  ],
};

const jobBlock: Section = {
  host: 'jobBlock',
  doc: 'Job block, byte offsets from its address.',
  type: 'usize',
  prefix: 'JOB_',
  entries: [
    ['plan', 0, 'plan entries'],
    ['scalars', 4],
    ['shared', 8, 'scratch that all threads share'],
    ['local', 12, 'scratch per thread'],
    ['localBytes', 16],
    ['profile', 20, 'f64 milliseconds per record, or 0'],
  ],
};

const planEntry: Section = {
  host: 'planEntry',
  doc: "Plan entry, byte offsets: address of the record's words, flags, six words for the kernel.",
  type: 'usize',
  prefix: 'PLAN_',
  entries: [
    ['record', 0],
    ['flags', 4],
    ['aux', 8],
  ],
};

/** Byte offsets of words. */
function bytesOf(words: Readonly<Record<string, number>>): readonly Entry[] {
  return Object.entries(words).map(([name, word]): Entry => [name, 4 * word]);
}

const record: Section = {
  kernelsOnly: true,
  doc: 'Header of a record as `encodeProgram` of @winnow/ops writes it, byte offsets. Tensors follow, then attributes of one word.',
  type: 'usize',
  prefix: 'RECORD_',
  entries: bytesOf(recordWords),
};

const recordTensor: Section = {
  kernelsOnly: true,
  doc: 'Tensor of a record, byte offsets. An absent tensor is one word, 0.',
  type: 'usize',
  prefix: 'TENSOR_',
  entries: [...bytesOf(tensorWords), ['absentBytes', 4]],
};

const maxRank = 8;
/** Byte offset of the dims. */
const slotDims = 16;

const frameSlot: Section = {
  kernelsOnly: true,
  doc: 'Tensor in the frame of a thread, byte offsets.',
  type: 'usize',
  prefix: 'SLOT_',
  entries: [
    ['present', 0],
    ['dtype', 4, 'GGUF type number'],
    ['address', 8],
    ['rank', 12],
    ['dims', slotDims, `up to ${maxRank}`],
    ['bytes', slotDims + 4 * maxRank],
  ],
};

const planFlags: Section = {
  host: 'planFlags',
  doc: 'Flags of a plan entry.',
  type: 'u32',
  prefix: 'FLAG_',
  entries: [
    ['int8', 1, 'activations as 8-bit integers'],
    ['repacked', 2, 'weight rows interleaved by four'],
    ['reuse', 4, 'the scratch of the previous record already holds this input'],
    ['native', 8, 'a native kernel computes this record'],
    ['independent', 16, 'independent of the previous record, so no barrier in between'],
    [
      'invariant',
      32,
      'batch-invariant: the bits of a token do not depend on the other tokens of its step, up to MAX_INVARIANT_TOKENS',
    ],
  ],
};

/** What a native kernel receives with a record, at the end of the thread's frame. */
const nativeTask: Section = {
  kernelsOnly: true,
  doc: 'Task of a native kernel, byte offsets from its address.',
  type: 'usize',
  prefix: 'TASK_',
  entries: [
    ['opcode', 0],
    ['plan', 4, 'plan entry of the record'],
    ['attributes', 8],
    ['shared', 12, 'scratch that all threads share'],
    ['local', 16, 'scratch of this thread'],
    ['counter', 20, 'counter of work items, 0 for a record that runs on one thread'],
    ['thread', 24],
    ['numThreads', 28, 'number of threads that work on the record'],
    ['offset', frameBytes - 64, 'distance from the frame to the task'],
  ],
};

const sizes: readonly Section[] = [
  {
    type: 'usize',
    entries: [['taskAt', frames + frameBytes - 64, 'task of thread 0']],
  },
  {
    kernelsOnly: true,
    type: 'usize',
    entries: [
      ['frames', frames],
      ['frameBytes', frameBytes],
      ['planBytes', 32, 'bytes of a plan entry'],
      ['counterBytes', 64, 'distance between the counters of work items'],
    ],
  },
  {
    type: 'usize',
    entries: [
      ['heapBase', frames + frameBytes * maxThreads, 'first byte that the host may allocate'],
      ['numCounters', 8, 'maximum number of records without a barrier between them'],
      ['pageBytes', 0x10000, 'bytes of a page of WebAssembly memory'],
    ],
  },
  {
    type: 'i32',
    entries: [
      ['maxThreads', maxThreads],
      ['jobWords', 6, 'words of a job block'],
      ['planWords', 8, 'words of a plan entry'],
      ['tableAux', 0, 'kernel word with the address of a table that records share'],
      ['aheadAux', 5, 'kernel word with the distance in records to the next int8 GEMM, plus 1; 0 for none'],
      ['refusedAux', 0, 'kernel word that a repacking job sets to 1 if the weights cannot be repacked'],
      ['cancelJob', 1, 'value of the cancel word: the job ends'],
      ['leave', 2, 'value of the cancel word: the workers end'],
    ],
  },
];

/** Jobs of the backend itself, besides the ops. */
export const jobs: readonly {
  readonly name: string;
  readonly opcode: number;
  readonly file: string;
  readonly call: string;
}[] = [
  { name: 'repack', opcode: 1000, file: 'gemm/repack', call: 'repackWeights()' },
  { name: 'restore', opcode: 1001, file: 'gemm/repack', call: 'restoreWeights()' },
  { name: 'repackNeurons', opcode: 1002, file: 'ffn/repack-neurons', call: 'repackNeurons()' },
  { name: 'restoreNeurons', opcode: 1003, file: 'ffn/repack-neurons', call: 'restoreNeurons()' },
  { name: 'probeTouch', opcode: 1010, file: 'roofline/probe', call: 'probe(opcode)' },
  { name: 'probeRead', opcode: 1011, file: 'roofline/probe', call: 'probe(opcode)' },
  { name: 'probeF32', opcode: 1012, file: 'roofline/probe', call: 'probe(opcode)' },
  { name: 'probeInt8', opcode: 1013, file: 'roofline/probe', call: 'probe(opcode)' },
];

/** These jobs have one operand, a matrix; jobs in one kernel file have the same. */
export const jobOperands: readonly {
  readonly file: string;
  readonly name: string;
  readonly axes: readonly [string, string];
  readonly dtypes: readonly string[];
}[] = [
  {
    ...{ file: 'repack', name: 'weight', axes: ['numOutputs', 'numInputs'] },
    dtypes: repackedDTypes.rows,
  },
  {
    ...{ file: 'repack-neurons', name: 'neurons', axes: ['numNeurons', 'numColumns'] },
    dtypes: repackedDTypes.neurons,
  },
  { file: 'probe', name: 'region', axes: ['numUnits', 'unitBytes'], dtypes: ['i8'] },
];

const jobOpcodes: Section = {
  host: 'jobOpcodes',
  doc: 'Jobs of the backend itself, besides the ops.',
  type: 'i32',
  prefix: 'JOB_OPCODE_',
  entries: jobs.map(({ name, opcode }): Entry => [name, opcode]),
};

/** Rows of a group that repacking interleaves. */
const groupSize = 4;

/** Numbers other than addresses on which host and kernels must agree. */
const agreements: Section = {
  type: 'i32',
  entries: [
    [
      'maxOwnCodes',
      512,
      'maximum number of activations that every thread quantizes redundantly, which is faster than a barrier',
    ],
    ['minPanelTokens', 4, 'minimum number of tokens for the GEMM over panels; fewer use GEMV'],
    ['probeSteps', probeSteps, 'steps of one pass of the arithmetic probes, ten vectors each'],
    ['groupSize', groupSize, 'rows of a group that repacking interleaves'],
    ['neuronColumns', 128, 'repacked neurons have a multiple of this number of columns'],
  ],
};

/** Bytes of the metadata of a block of activations. */
export const metaBytes = 32;
/** The metadata of a block of activations; `d` is the scale of its codes. */
const metaOffsets: Section = {
  kernelsOnly: true,
  doc: 'Byte offsets in the metadata of a block of activations.',
  type: 'usize',
  prefix: 'META_',
  entries: [
    ['scale', 0, 'd'],
    ['sum', 4, 'd * sum of codes'],
    ['minus_8', 8, '-8 * sum of codes'],
    ['startQ8', 12, 'initial sum for unsigned codes of q8_0'],
    ['minus_32', 16, '-32 * sum of the codes of the first half, then of the second half'],
    ['zero', 24],
  ],
};

const vectorBytes = 16;
/** Bytes of the binary16 scales of a group, one for each row. */
const halvesBytes = 2 * groupSize;
const scalesAtK = 2 * halvesBytes;
const fifthsAtQ5K = scalesAtK + 3 * vectorBytes;
const nibblesAtQ6K = halvesBytes + 4 * vectorBytes;

/** Where the parts of a repacked super-block begin, see `assembly/gemm/repack.ts`. */
const superBlocks: Section = {
  kernelsOnly: true,
  doc: 'Byte offsets in a repacked super-block of a group of rows.',
  type: 'usize',
  entries: [
    ['scalesAtK', scalesAtK, 'q4_K and q5_K'],
    ['nibblesAtQ4_K', scalesAtK + 3 * vectorBytes],
    ['fifthsAtQ5_K', fifthsAtQ5K],
    ['nibblesAtQ5_K', fifthsAtQ5K + 8 * vectorBytes],
    ['scalesAtQ6_K', halvesBytes],
    ['nibblesAtQ6_K', nibblesAtQ6K],
    ['pairsAtQ6_K', nibblesAtQ6K + 32 * vectorBytes],
  ],
};

/** Bytes of the unsigned codes of an unpacked block: 32 columns of a group of rows. */
const unpackedCodes = 32 * groupSize;
/** Where the second vector of floats of an unpacked block begins. */
const secondFloats = unpackedCodes + 4 * groupSize;
/** Rows that an axpy kernel adds at once. */
export const axpyRows = 8;
/** Groups that qgemv streams concurrently. */
export const streams = { blocks: 8, superBlocks: 4 };

/** Constants that kernels share with their templates or with the op registry. */
const kernelConstants: readonly Section[] = [
  {
    kernelsOnly: true,
    type: 'usize',
    entries: [
      ['metaBytes', metaBytes, 'bytes of the metadata of a block of activations'],
      ['firstFloats', unpackedCodes, 'where the first vector of floats of an unpacked block begins'],
      ['secondFloats', secondFloats, 'where the second one begins'],
      ['unpackedBytes', secondFloats + 4 * groupSize, 'bytes of an unpacked block'],
      ['sumsBytes', 32 * 4, 'bytes of the f32 sums of a block of 32 columns'],
      ['quadBytes', 32 * 4, 'bytes of the codes of a block of four interleaved rows'],
      ['ropeEntryBytes', ropeEntryBytes, "bytes of an entry of rope's table: a cosine and a sine in f64"],
    ],
  },
  {
    kernelsOnly: true,
    type: 'i32',
    entries: [
      ['axpyRows', axpyRows, 'rows that an axpy kernel adds at once'],
      ['blockStreams', streams.blocks, 'groups of q8_0 or q4_0 that qgemv streams concurrently'],
      ['superBlockStreams', streams.superBlocks, 'the same for k-quants'],
      ['neuronGroup', neuronGroup, 'active neurons that are summed before the sum is rounded to f32'],
      [
        'maxInvariantTokens',
        maxInvariantTokens,
        'maximum number of tokens of a batch-invariant step, and of one whose contexts are split',
      ],
      ['maxSplits', 16, 'maximum number of splits of a context'],
      [
        'splitItems',
        32,
        'work items of a long context: enough to occupy all threads, but few, because each starts with a memory stall',
      ],
      ['minSplit', 256, 'minimum number of slots of a split'],
      [
        'maxPageExponent',
        maxPageExponent,
        'maximum exponent of a page relative to the best one, see `verified-topk-attention`',
      ],
      ['maxExponent', maxExponent, 'maximum exponent of a probability'],
      ['maxGlobals', maxGlobals, 'maximum number of global positions of a record'],
    ],
  },
  {
    kernelsOnly: true,
    type: 'f64',
    entries: [['normMargin', normMargin, 'factor by which norms are rounded up, because they serve as upper bounds']],
  },
];

export const sections: readonly Section[] = [
  ...[
    gridAddresses,
    controlWords,
    int8Dots,
    jobBlock,
    planEntry,
    record,
    recordTensor,
    frameSlot,
    planFlags,
    jobOpcodes,
    agreements,
  ],
  nativeTask,
  metaOffsets,
  superBlocks,
  ...kernelConstants,
  ...sizes,
];
