/**
 * The process that runs node-llama-cpp: separate from the bench, so that they share no threads or memory and a crash
 * does not end the bench. Imports only types of the bench.
 */
import { pathToFileURL } from 'node:url';
import type { PeerAnswer, PeerRequest, PeerResult, PeerSettings } from './protocol.js';

/** The parts of the package in use; it is not a dependency and therefore has no types. */
interface Sequence {
  readonly nextTokenIndex: number;
  clearHistory(): Promise<void>;
  eraseContextTokenRanges(ranges: { start: number; end: number }[]): Promise<void>;
  evaluate(tokens: number[], options: object): AsyncGenerator<number, void, void>;
  evaluateWithoutGeneratingNewTokens(tokens: number[]): Promise<void>;
  controlledEvaluate(input: unknown[]): Promise<({ next: { logits?: Map<number, number> } } | undefined)[]>;
}
interface LlamaModule {
  getLlama(options: object): Promise<{
    loadModel(options: object): Promise<{
      createContext(options: object): Promise<{ getSequence(): Sequence }>;
    }>;
  }>;
}

const slots: Sequence[] = [];

/** @returns milliseconds, excluding the time to load the package's own code */
async function load(modulePath: string, settings: PeerSettings): Promise<number> {
  const { modelPath, contextSizes, threads, flashAttention } = settings;
  const { getLlama } = (await import(pathToFileURL(modulePath).href)) as LlamaModule;
  const startMs = performance.now();
  const options = { gpu: false, build: 'never', skipDownload: true, logLevel: 'error', maxThreads: threads };
  const llama = await getLlama(options);
  const model = await llama.loadModel({ modelPath });
  for (const contextSize of contextSizes) {
    const batchSize = Math.min(512, contextSize);
    const context = await model.createContext({
      ...{ contextSize, batchSize, sequences: 1, flashAttention },
      threads: { ideal: threads, min: threads },
    });
    slots.push(context.getSequence());
  }
  return performance.now() - startMs;
}

function slot(index: number): Sequence {
  const found = slots[index];
  if (found === undefined) throw new Error(`no slot ${index} is loaded`);
  return found;
}

async function generate(from: Sequence, tokens: readonly number[], count: number): Promise<number[]> {
  const generated: number[] = [];
  for await (const token of from.evaluate([...tokens], { temperature: 0, yieldEogToken: true })) {
    generated.push(token);
    if (generated.length >= count) break;
  }
  return generated;
}

async function answer(request: PeerRequest): Promise<PeerResult> {
  if (request.kind === 'load') {
    return { timeMs: await load(request.modulePath, request.settings), tokens: [] };
  }
  if (request.kind === 'context') {
    const sequence = slot(request.slot);
    await sequence.clearHistory();
    await sequence.evaluateWithoutGeneratingNewTokens([...request.tokens]);
    return { timeMs: 0, tokens: [] };
  }
  if (request.kind === 'decode') {
    const sequence = slot(request.slot);
    const begin = sequence.nextTokenIndex;
    const startMs = performance.now();
    const tokens = await generate(sequence, [request.token], request.count);
    const timeMs = performance.now() - startMs;
    await sequence.eraseContextTokenRanges([{ start: begin, end: sequence.nextTokenIndex }]);
    return { timeMs, tokens };
  }
  const sequence = slot(0);
  await sequence.clearHistory();
  if (request.kind === 'prefill') {
    const startMs = performance.now();
    const tokens = await generate(sequence, request.tokens, 1);
    const timeMs = performance.now() - startMs;
    await sequence.clearHistory();
    return { timeMs, tokens };
  }
  const { tokens } = request;
  const last = [tokens.at(-1), { generateNext: { logits: true, options: { temperature: 0 } } }];
  const results = await sequence.controlledEvaluate([...tokens.slice(0, -1), last]);
  const logits = results.at(-1)?.next.logits;
  if (logits === undefined) throw new Error('the peer returned no logits');
  await sequence.clearHistory();
  return { timeMs: 0, tokens: [], logprobs: logprobsOf(logits) };
}

function logprobsOf(logits: ReadonlyMap<number, number>): Float32Array {
  const max = Math.max(...[...logits.values()].slice(0, 1));
  let sum = 0;
  for (const logit of logits.values()) sum += Math.exp(logit - max);
  const logprobs = new Float32Array(logits.size);
  for (const [token, logit] of logits) logprobs[token] = logit - max - Math.log(sum);
  return logprobs;
}

async function respond(request: PeerRequest): Promise<PeerAnswer> {
  try {
    const result = await answer(request);
    const { user, system } = process.cpuUsage();
    return { ...result, cpuMs: (user + system) / 1000 };
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

process.on('message', (request: PeerRequest) => void respond(request).then((message) => process.send?.(message)));
process.on('disconnect', () => process.exit());
