/** Policy files of `winnow tune` and `--attention auto`, and checkpoints of unfinished searches. */
import { existsSync } from 'node:fs';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { policyFileOf, type LoadOptions, type ModelLocation } from '@winnow/engine';
import type { TuneCheckpoint } from '@winnow/evaluation';
import { readTunedPolicy, type AttentionSpec } from '@winnow/sparse-attention';
import { IoError } from '@winnow/tensor';
import { attentionOf, isAuto } from '../flags/engine-options.js';
import type { AttentionFlags } from '../flags/load.js';
import type { CliIo } from '../terminal/io.js';
import { parseModelReference } from './model-location.js';

/**
 * Where the policies of a model are: beside the model on this computer; of the demo model, a URL or a repository in the
 * current folder, by its name.
 */
export function policyPath(model: string | undefined): string {
  if (model === undefined) return 'winnow-tiny.policy.json';
  const reference = parseModelReference(model);
  if (reference.kind === 'hub') return policyFileOf(lastPart(reference.request.file ?? reference.request.repo));
  const { location } = reference;
  return policyFileOf(location instanceof URL ? lastPart(location.pathname) : String(location));
}

/** The options with the policy file that `--attention auto` reads. */
export function withPolicyPath(model: string | undefined, options: LoadOptions): LoadOptions {
  if (options.attention !== 'auto' || options.policyFile !== undefined) return options;
  return { ...options, policyFile: policyPath(model) };
}

/**
 * The policies of `--attention`, `--prefill`, `--decode` and of the policy file that `--attention auto` means, for
 * commands that take them apart. Undefined without such flags.
 */
export async function chosenAttention(
  model: string | undefined,
  flags: AttentionFlags,
  location: ModelLocation,
  context: { readonly io: CliIo; readonly signal: AbortSignal },
): Promise<AttentionSpec | undefined> {
  if (!isAuto(flags)) return attentionOf(flags);
  return tunedAttention(flags.policyFile ?? policyPath(model), location, context);
}

/**
 * The policies of a policy file.
 * @throws {FormatError} for a damaged file or one of another model
 * @throws {IoError} when there is none
 */
async function tunedAttention(
  path: string,
  location: ModelLocation,
  { io, signal }: { readonly io: CliIo; readonly signal: AbortSignal },
): Promise<AttentionSpec> {
  const modelHash = await (await io.engine()).weightsHash(location, { signal });
  let text: string;
  try {
    text = await readFile(path, { encoding: 'utf8', signal });
  } catch (cause) {
    signal.throwIfAborted();
    const message = `the policy file cannot be read (${(cause as Error).message}); winnow tune writes it`;
    throw new IoError({ source: path, message }, { cause });
  }
  return readTunedPolicy(text, { source: path, modelHash }).attention;
}

function lastPart(path: string): string {
  return path.replace(/\/+$/, '').split('/').at(-1) ?? path;
}

/** The checkpoint next to the policy file, until that is written. */
export interface PolicyCheckpoint extends TuneCheckpoint {
  readonly path: string;
  exists(): Promise<boolean>;
  remove(): Promise<void>;
}

export function policyCheckpoint(policyFile: string): PolicyCheckpoint {
  const path = `${policyFile}.partial`;
  return {
    path,
    exists: () => Promise.resolve(existsSync(path)),
    load: async () => (existsSync(path) ? readFile(path, 'utf8') : undefined),
    async save(text) {
      // if the search is killed meanwhile, the earlier measurements are kept
      await writeFile(`${path}~`, text);
      await rename(`${path}~`, path);
    },
    remove: () => rm(path, { force: true }),
  };
}

/** The processor and the number of threads. */
export function machineName(threads: number | undefined): string {
  const processors = cpus();
  const model = processors[0]?.model.trim() ?? process.arch;
  const count = threads ?? processors.length;
  return `${model}, ${count} ${count === 1 ? 'thread' : 'threads'}`;
}
