/**
 * A separate process for a very long context, so that its peak memory is that of the run. Reads its task as JSON from
 * the arguments and prints the result as JSON.
 */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { memorySink, memorySource } from '@winnow/bytes';
import { fileSink } from '@winnow/bytes/node';
import { loadModel, type LoadOptions, type TierMetrics } from '@winnow/engine';
import { openSession, writeSession, type SessionSection } from '@winnow/kv-cache';
import type { Backend } from '@winnow/ops';
import type { DType } from '@winnow/tensor';

export interface LongTask {
  readonly path: string;
  /** Context length in tokens. */
  readonly numTokens: number;
  /** Source of the context: computed, or a session file extended from a short one. */
  readonly from: 'prompt' | 'session';
  readonly kvDType: DType;
  /** Policy. Default: dense. */
  readonly attention?: string;
  readonly hotBytes: number;
  readonly warmBytes: number;
  readonly folder: string;
  readonly batchSize: number;
  readonly numThreads: number;
  /** Number of tokens of a question after the context, and of tokens to generate. */
  readonly numAsked: number;
  readonly numGenerated: number;
}

export interface LongOutcome {
  /** Time until the context is ready. */
  readonly contextMs: number;
  /** Time until the question is computed. */
  readonly askedMs: number;
  readonly generateMs: number;
  readonly tokens: readonly number[];
  readonly peakBytes: number;
  /** The same after loading the model, before the first token. */
  readonly loadedBytes: number;
  readonly kvBytes: number;
  readonly kvBytesPerToken: number;
  readonly tiers: TierMetrics | undefined;
  /** Bytes read from files for the generated tokens. */
  readonly generateReadBytes: number;
  readonly cpuMs: number;
}

export const longTokens = (count: number, vocabSize: number): number[] =>
  Array.from({ length: count }, (_, index) => 3 + ((index * 7919 + (index >> 5)) % (vocabSize - 3)));

const peakBytes = (): number => process.resourceUsage().maxRSS * 1024;

export async function runLong(task: LongTask): Promise<LongOutcome> {
  const { numTokens, numAsked, numGenerated, kvDType, hotBytes, warmBytes, batchSize, numThreads, folder } = task;
  const options: LoadOptions = {
    context: numTokens + numAsked + numGenerated + 1,
    maxSessions: 1,
    kvCache: {
      dtype: kvDType,
      prefixSharing: false,
      budget: hotBytes,
      offload: { memory: warmBytes, folder },
    },
    batchSize,
    threads: numThreads,
    ...(task.attention === undefined ? {} : { attention: task.attention }),
  };
  const sessionPath = join(folder, `long-${process.pid}.session`);
  if (task.from === 'session') await writeLongSession(task, sessionPath);
  const model = await loadModel(task.path, options);
  try {
    const loadedBytes = peakBytes();
    const generation = { temperature: 0, ignoreEos: true, maxTokens: numGenerated } as const;
    const startMs = performance.now();
    const prompt = longTokens(numTokens, model.config.vocabSize);
    const session = task.from === 'session' ? await model.restoreSession(sessionPath) : model.createSession();
    if (task.from === 'prompt') {
      await session.generate(prompt, { ...generation, maxTokens: 0 }).result();
    }
    const contextMs = performance.now() - startMs;
    const question = longTokens(numTokens + numAsked, model.config.vocabSize);
    await session.generate(question, { ...generation, maxTokens: 0 }).result();
    const askedMs = performance.now() - startMs - contextMs;
    const bytesRead = model.metrics().tiers?.bytesRead ?? 0;
    // the first input token counts as a generated one
    const asked = { ...generation, promptPhase: 'decode' } as const;
    const { tokens } = await session.generate([...question, 3], asked).result();
    const { tiers } = model.metrics();
    return {
      contextMs,
      askedMs,
      generateMs: performance.now() - startMs - contextMs - askedMs,
      tokens,
      peakBytes: peakBytes(),
      loadedBytes,
      kvBytes: model.plan.kvBytes,
      kvBytesPerToken: model.plan.kvBytesPerToken,
      tiers,
      generateReadBytes: (tiers?.bytesRead ?? 0) - bytesRead,
      cpuMs: (process.cpuUsage().user + process.cpuUsage().system) / 1000,
    };
  } finally {
    await model.dispose();
    await rm(sessionPath, { force: true });
  }
}

/**
 * Writes a long session by repeating the blocks of a short one: its contents are meaningless, but its speed is
 * realistic.
 */
export async function writeLongSession(
  task: Pick<LongTask, 'path' | 'kvDType' | 'numTokens' | 'numThreads' | 'attention'>,
  path: string,
  backend?: Backend,
): Promise<void> {
  const { kvDType, numTokens, numThreads, attention } = task;
  const numShort = Math.min(1024, numTokens);
  const short = memorySink();
  const size = {
    context: 2 * numShort,
    maxSessions: 1,
    kvCache: { dtype: kvDType },
    ...(attention === undefined ? {} : { attention }),
  };
  const where = backend === undefined ? { threads: numThreads } : { backend };
  const model = await loadModel(task.path, { ...size, ...where });
  const session = model.createSession();
  const prompt = longTokens(numTokens, model.config.vocabSize);
  await session.generate(prompt.slice(0, numShort), { temperature: 0, maxTokens: 0 }).result();
  await session.save(short);
  await model.dispose();
  const file = await openSession(memorySource(short.toBytes()));
  const words = (name: string, values: Int32Array): SessionSection => section(name, new Uint8Array(values.buffer), 1);
  const sections: SessionSection[] = [];
  for (const { name, sizeBytes } of file.sections) {
    if (name === 'tokens') sections.push(words(name, Int32Array.from(prompt)));
    else if (name === 'positions')
      sections.push(
        words(
          name,
          Int32Array.from(prompt, (_, position) => position),
        ),
      );
    else if (name.startsWith('state.')) sections.push(section(name, await file.readAll(name), 1));
    else if (sizeBytes > 0) sections.push(section(name, await file.readAll(name), numTokens / numShort));
  }
  const { modelHash, options } = file;
  const metadata = { generation: null, caller: null };
  await writeSession(await fileSink(path), { modelHash, options, metadata, sections });
}

/** Repeats bytes. */
function section(name: string, bytes: Uint8Array, numTimes: number): SessionSection {
  return {
    name,
    sizeBytes: bytes.byteLength * numTimes,
    read(byteOffset, target): void {
      for (let begin = 0; begin < target.byteLength;) {
        const from = (byteOffset + begin) % bytes.byteLength;
        const count = Math.min(bytes.byteLength - from, target.byteLength - begin);
        target.set(bytes.subarray(from, from + count), begin);
        begin += count;
      }
    },
  };
}
