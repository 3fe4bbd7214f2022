/**
 * Measures the machine's peaks from WebAssembly: probes with the backend's workers and kernels, in a separate memory.
 */
import { createHost } from '#host';
import type { WasmHost } from '../host/host.js';
import { compileKernels, supportsRelaxedSimd, type Variant } from '../host/web-assembly.js';
import { jobOf, matrixRecord, matrixRecordWords } from '../kernels/job-words.js';
import { controlWords, jobOpcodes, jobWords, pageBytes, planWords, probeSteps } from '../kernels/layout.generated.js';
import { Heap } from '../memory/heap.js';
import { workersOnly } from '../runner/caller-share.js';
import { LocalRunner } from '../runner/local-runner.js';
import type { Runner } from '../runner/runner.js';
import { WorkerRunner } from '../runner/worker-runner.js';
import { checkInteger, checkMilliseconds } from './check-options.js';
import { resolveThreads } from './threads.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface PeakOptions {
  /** Default: the number of hardware threads. */
  readonly numThreads?: number;
  /** Memory to read, far larger than the caches. Default 128 MiB. */
  readonly memoryBytes?: number;
  /** Time of each of the three probes; the first runs are warm-up. Default 60 ms. */
  readonly probeMs?: number;
}

/** As `PeakOptions`, with the workers of Node or of the browser by default. */
export interface MeasurePeaksOptions extends PeakOptions {
  readonly host?: WasmHost;
}

const measurePeaksNames: OptionNames<MeasurePeaksOptions> = {
  host: true,
  numThreads: true,
  memoryBytes: true,
  probeMs: true,
};

/** Medians over several runs of each probe, all threads together. */
export interface MachinePeaks {
  readonly variant: Variant;
  readonly numThreads: number;
  /** Bytes read from memory per second. */
  readonly bytesPerSecond: number;
  /** Multiply-adds of f32, two operations each, per second. */
  readonly f32OpsPerSecond: number;
  /** Integer multiply-adds of 8-bit dot products, two operations each, per second. */
  readonly int8OpsPerSecond: number;
}

/** Operations of one pass: multiply-adds of four f32, or of the 8-bit numbers of a dot product. */
const f32OpsPerPass = probeSteps * 10 * 8;
const int8OpsPerPass: Readonly<Record<Variant, number>> = {
  'relaxed-simd': probeSteps * 10 * 32,
  simd: probeSteps * 10 * 16,
};
/** Bytes per work item of reading, passes per work item of arithmetic: about 0.1 ms each. */
const readUnit = 2 ** 20;
const passesPerUnit = 8192;
const unitsPerThread = 8;
/** Bytes that the arithmetic loops read. */
const operandBytes = 1024;
const localBytes = 64;
const defaultMemoryBytes = 2 ** 27;

interface Probe {
  readonly opcode: number;
  readonly address: number;
  readonly numUnits: number;
  readonly unitSize: number;
}

/**
 * Measures the machine's peaks with the backend's kernels and workers: memory bandwidth, f32 and int8 arithmetic. Takes
 * about a quarter of a second and 128 MiB by default; run nothing else meanwhile.
 * @throws {ArgumentError} for invalid options
 * @throws {CapacityError} when the memory to read cannot be allocated
 */
export async function measurePeaks(options: MeasurePeaksOptions = {}): Promise<MachinePeaks> {
  checkOptions(options, measurePeaksNames);
  const { host = createHost(), numThreads: asked, memoryBytes = defaultMemoryBytes, probeMs = 60 } = options;
  const { isShared, numThreads } = await resolveThreads({ numThreads: asked }, host);
  checkInteger('memoryBytes', memoryBytes, readUnit, 2 ** 31);
  checkMilliseconds('probeMs', probeMs);
  const variant: Variant = supportsRelaxedSimd() ? 'relaxed-simd' : 'simd';
  const numReadUnits = Math.floor(memoryBytes / readUnit);
  const kernels = { module: await compileKernels(variant, isShared) };
  const heap = new Heap(numReadUnits * readUnit + 16 * pageBytes, isShared);
  heap.words(controlWords.minWork, 1)[0] = 0;
  heap.words(controlWords.spins, 1)[0] = 1000;
  const onDeath = (): void => undefined;
  const runner = isShared
    ? new WorkerRunner(kernels, heap.memory, host, { numThreads, usesMessages: false, onDeath })
    : new LocalRunner(kernels, heap.memory, host, onDeath);
  try {
    const run = prepare(heap, runner, numThreads);
    const memory = heap.allocate(numReadUnits * readUnit, 'memory to read');
    const operands = heap.allocate(operandBytes, 'operands');
    fillOperands(heap, operands);
    const numUnits = unitsPerThread * numThreads;
    const arithmetic = { address: operands, numUnits, unitSize: passesPerUnit };
    const reading = { address: memory, numUnits: numReadUnits, unitSize: readUnit };
    await run({ ...reading, opcode: jobOpcodes.probeTouch }); // now all pages are mapped
    const rate = async (probe: Probe): Promise<number> => {
      const end = host.now() + probeMs;
      const times: number[] = [];
      do times.push(await run(probe));
      while (host.now() < end);
      return (probe.numUnits * probe.unitSize * 1000) / median(times);
    };
    const bytesPerSecond = await rate({ ...reading, opcode: jobOpcodes.probeRead });
    const f32Passes = await rate({ ...arithmetic, opcode: jobOpcodes.probeF32 });
    const int8Passes = await rate({ ...arithmetic, opcode: jobOpcodes.probeInt8 });
    return {
      ...{ variant, numThreads, bytesPerSecond },
      f32OpsPerSecond: f32Passes * f32OpsPerPass,
      int8OpsPerSecond: int8Passes * int8OpsPerPass[variant],
    };
  } finally {
    await runner.dispose();
  }
}

/**
 * A job of two records, rewritten for each probe: an empty one, which synchronizes the threads, and the probe. Returns
 * the milliseconds until the last thread finishes.
 */
function prepare(heap: Heap, runner: Runner, numThreads: number): (probe: Probe) => Promise<number> {
  const numRecords = 2;
  const wordsAt = heap.allocate(numRecords * matrixRecordWords * 4, 'probe');
  const planAt = heap.allocate(numRecords * planWords * 4, 'probe');
  const jobAt = heap.allocate(jobWords * 4, 'probe');
  const profileAt = heap.allocate(numRecords * 8, 'probe');
  const localAt = heap.allocate(localBytes * numThreads, 'probe');
  const plan = heap.words(planAt, numRecords * planWords);
  for (let record = 0; record < numRecords; record++)
    plan[record * planWords] = wordsAt + record * matrixRecordWords * 4;
  heap.words(jobAt, jobWords).set(jobOf({ plan: planAt, local: localAt, localBytes, profile: profileAt }));
  const times = new Float64Array(heap.memory.buffer, profileAt, numRecords);
  const recordOf = ({ opcode, address, numUnits, unitSize }: Probe): number[] =>
    matrixRecord(opcode, { ggmlType: 0, address, numRows: numUnits, numColumns: unitSize });
  return async (probe) => {
    const empty = { opcode: jobOpcodes.probeTouch, address: probe.address, numUnits: 0, unitSize: 0 };
    heap.words(wordsAt, numRecords * matrixRecordWords).set([...recordOf(empty), ...recordOf(probe)]);
    times.fill(0);
    await runner.run({ address: jobAt, begin: 0, end: numRecords, share: workersOnly });
    return times[1] as number;
  };
}

/** Not the minimum: thread 0 measures the time, and if it starts late, the others have already done its work. */
function median(values: number[]): number {
  values.sort((a, b) => a - b);
  return values[values.length >> 1] as number;
}

/** Small normal numbers: sums of them stay finite and no operand is a denormal. */
function fillOperands(heap: Heap, address: number): void {
  const operands = new Float32Array(heap.memory.buffer, address, operandBytes / 4);
  for (let i = 0; i < operands.length; i++) operands[i] = ((i % 7) - 3.5) / 1024;
}
