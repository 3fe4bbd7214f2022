/** `attention: 'auto'`: the policy of the model's policy file. */
import { HtmlPageError, readBytes, type ByteSource, type TensorStore } from '@winnow/bytes';
import { readTunedPolicy, type AttentionSpec, type TunedPolicy } from '@winnow/sparse-attention';
import { ArgumentError, FormatError, IoError } from '@winnow/tensor';
import { openFileSource, type FileSource, type SidecarHost } from '../sparsity/options.js';
import { weightsHash } from '../sparsity/weights-hash.js';

/** The value of the option `attention` that asks for the policy file. */
export const autoAttention = 'auto';

/** A file of `winnow tune`: a path or URL, its bytes, a Blob, an open file (which Winnow then owns), or what it says. */
export type PolicySource = FileSource | TunedPolicy;

/** The options that `chooseAttention` reads. */
interface AutoOptions {
  readonly attention: AttentionSpec | string;
  readonly policyFile: PolicySource | undefined;
  readonly fetch?: typeof fetch;
  readonly signal?: AbortSignal;
}

/** Larger files are not policy files. */
const maxFileBytes = 16 * 1024 * 1024;

/** Where `winnow tune` writes the file of a model: `model.gguf` and the folder `model` have `model.policy.json`. */
export function policyFileOf(location: string | URL): string {
  const text = String(location)
    .replace(/[?#].*$/, '')
    .replace(/[/\\]+$/, '');
  return `${text.replace(/\.(gguf|safetensors|onnx)$/i, '')}.policy.json`;
}

/**
 * The attention of the options, or the policy that `auto` stands for.
 * @param notice receives a sentence when there is no file, so that attention is dense
 * @throws {FormatError} for a damaged file or one of another model
 * @throws {IoError} when it cannot be read
 * @throws {ArgumentError} for a policy file without `auto`
 */
export async function chooseAttention(
  options: AutoOptions,
  store: TensorStore,
  host: SidecarHost,
  notice: (text: string) => void,
): Promise<AttentionSpec | string> {
  const { attention, policyFile, signal } = options;
  if (attention !== autoAttention) {
    if (policyFile === undefined) return attention;
    const [expected, actual] = ["nothing without attention: 'auto'", 'a policy file'];
    throw new ArgumentError({ argument: 'policyFile', expected, actual });
  }
  const dense = (reason: string): string => {
    notice(`attention auto: ${reason}, so attention is dense; winnow tune finds a policy`);
    return 'dense';
  };
  if (policyFile === undefined) return dense('this model has no place for a policy file, and no policyFile is given');
  const modelHash = await weightsHash(store, signal === undefined ? {} : { signal });
  if (isTuned(policyFile)) {
    if (policyFile.modelHash === modelHash) return policyFile.attention;
    const message = `expected the hash of the model, ${modelHash}, found ${policyFile.modelHash} (tuned for another model)`;
    throw new FormatError({ source: 'policyFile', field: 'modelHash', message });
  }
  const text = await readText(() => openFileSource('policyFile', policyFile, host, options.fetch));
  if (text === undefined) return dense(`there is no file ${String(policyFile)}`);
  return readTunedPolicy(text, { source: nameOf(policyFile), modelHash }).attention;
}

function isTuned(source: PolicySource): source is TunedPolicy {
  return typeof source === 'object' && 'modelHash' in source;
}

function nameOf(source: FileSource): string {
  if (typeof source === 'string' || source instanceof URL) return String(source);
  return 'policyFile';
}

/** Undefined when there is no such file. */
async function readText(open: () => Promise<ByteSource>): Promise<string | undefined> {
  try {
    const file = await open();
    try {
      if (file.sizeBytes > maxFileBytes) {
        const message = `expected a policy file of at most ${maxFileBytes} bytes, got ${file.sizeBytes}`;
        throw new IoError({ source: file.name, message });
      }
      return new TextDecoder().decode(await readBytes(file, 0, file.sizeBytes));
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Whether a file or a resource of a server does not exist. */
function isMissing(error: unknown): boolean {
  if (!IoError.isInstance(error)) return false;
  if (error instanceof HtmlPageError) return true; // servers of web apps answer with a page for every name
  return (
    (error.cause as { code?: unknown } | undefined)?.code === 'ENOENT' || /HTTP status (404|410)\b/.test(error.message)
  );
}
