/** Finds the architecture of a model file. */
import { ArgumentError, describeValue, FormatError } from '@winnow/tensor';
import type { Architecture, EmbedderDescription, ModelDescription, ModelFile } from './program/architecture.js';
import { bert } from './architectures/bert.js';
import { deepseek2 } from './architectures/deepseek2.js';
import { ernie45 } from './architectures/ernie45.js';
import { clip } from './architectures/clip.js';
import { falconH1 } from './architectures/falcon-h1.js';
import type { Pooling } from './program/embedding-program.js';
import { gemma } from './architectures/gemma.js';
import { gemmaEmbedding } from './architectures/gemma-embedding.js';
import { gemma2 } from './architectures/gemma2.js';
import { gemma3 } from './architectures/gemma3.js';
import { gemma3n } from './architectures/gemma3n.js';
import { gemma4 } from './architectures/gemma4.js';
import { glm4 } from './architectures/glm4.js';
import { glm4moe } from './architectures/glm4moe.js';
import { gpt2 } from './architectures/gpt2.js';
import { gptOss } from './architectures/gpt-oss.js';
import { granite } from './architectures/granite.js';
import { graniteHybrid } from './architectures/granite-hybrid.js';
import { granitemoe } from './architectures/granitemoe.js';
import { lfm2 } from './architectures/lfm2.js';
import { lfm2moe } from './architectures/lfm2moe.js';
import { gte } from './architectures/gte.js';
import { llama } from './architectures/llama.js';
import { llavaNext } from './architectures/llava-next.js';
import { llavaOnevision } from './architectures/llava-onevision.js';
import { llama4 } from './architectures/llama4.js';
import { llava } from './architectures/llava.js';
import { mamba } from './architectures/mamba.js';
import { mamba2 } from './architectures/mamba2.js';
import { ministral3 } from './architectures/ministral3.js';
import { mixtral } from './architectures/mixtral.js';
import { describeWithMmproj, type MmprojFile } from './architectures/mmproj.js';
import { modernBert } from './architectures/modern-bert.js';
import { mpnet } from './architectures/mpnet.js';
import { nomicBert } from './architectures/nomic-bert.js';
import { olmo2 } from './architectures/olmo2.js';
import { olmoe } from './architectures/olmoe.js';
import { phi2 } from './architectures/phi2.js';
import { phi3 } from './architectures/phi3.js';
import { qwen2 } from './architectures/qwen2.js';
import { qwen2vl } from './architectures/qwen2vl.js';
import { qwen2moe } from './architectures/qwen2moe.js';
import { qwen3 } from './architectures/qwen3.js';
import { qwen35 } from './architectures/qwen35.js';
import { qwen35moe } from './architectures/qwen35moe.js';
import { qwen3next } from './architectures/qwen3next.js';
import { qwen3vl, qwen3vlmoe } from './architectures/qwen3vl.js';
import { qwen3moe } from './architectures/qwen3moe.js';
import { siglip } from './architectures/siglip.js';
import { smollm3 } from './architectures/smollm3.js';
import { smolvlm } from './architectures/smolvlm.js';
import { stablelm } from './architectures/stablelm.js';
import { starcoder2 } from './architectures/starcoder2.js';
import { xlmRoberta } from './architectures/xlm-roberta.js';
import { refuseSettings } from './settings/config-checks.js';
import { withOuterName } from './settings/text-part.js';
import { whatIsMissing } from './unsupported.js';

/** All architectures. */
export const architectures: readonly Architecture[] = [
  llama,
  llama4,
  ministral3,
  qwen2,
  qwen3,
  phi2,
  phi3,
  gemma,
  gemma2,
  gemmaEmbedding,
  gemma3,
  gemma3n,
  gemma4,
  gpt2,
  starcoder2,
  stablelm,
  granite,
  granitemoe,
  graniteHybrid,
  ernie45,
  glm4,
  glm4moe,
  deepseek2,
  smollm3,
  mixtral,
  qwen2moe,
  qwen3moe,
  gptOss,
  olmo2,
  olmoe,
  lfm2,
  lfm2moe,
  qwen35,
  qwen35moe,
  qwen3next,
  falconH1,
  mamba2,
  mamba,
  bert,
  xlmRoberta,
  mpnet,
  nomicBert,
  gte,
  modernBert,
  llava,
  llavaNext,
  llavaOnevision,
  smolvlm,
  qwen2vl,
  qwen3vl,
  qwen3vlmoe,
  clip,
  siglip,
];

/**
 * Reads the settings of a generative model and locates its weights, without loading them.
 * @param images its image encoder, if that is in a separate file
 * @throws {FormatError} for an unsupported architecture (the message says what is missing, and names the nearest family and
 *   all supported ones), and when the file lacks something that its architecture requires
 * @throws {ArgumentError} for an encoder, which only embeds, and for a reranker
 */
export async function describeModel(file: ModelFile, images?: MmprojFile): Promise<ModelDescription> {
  const architecture = architectureOf(file);
  checkNoHead(file, architecture);
  if (architecture.isEncoder !== true) {
    return images === undefined ? architecture.describe(withOuterName(file)) : describeWithMmproj(file, images);
  }
  throw new ArgumentError({
    argument: 'model',
    expected: 'a generative architecture',
    actual: `${architecture.name}, an encoder, which only embeds`,
  });
}

/**
 * Reads the settings of an embedding model; generative models can embed as well.
 * @throws {FormatError} as `describeModel` does
 * @throws {ArgumentError} for a reranker
 */
export async function describeEmbedder(file: ModelFile): Promise<EmbedderDescription | ModelDescription> {
  const architecture = architectureOf(file);
  checkNoHead(file, architecture);
  return architecture.describe(withOuterName(file));
}

/** Whether the file has a classification head. Judges (decoders that answer yes or no) have none in Hugging Face checkpoints. */
export function hasRankingHead(file: ModelFile): boolean {
  return headTensor(file, architectureOf(file)) !== undefined;
}

function headTensor({ format, store }: ModelFile, architecture: Architecture): string | undefined {
  const hub = architecture.isEncoder === true ? architecture.head?.output : undefined;
  const layer = format === 'gguf' ? 'cls.output' : hub;
  if (layer === undefined) return undefined;
  const name = `${layer}.weight`;
  return store.tensors.has(name) ? name : undefined;
}

/** @throws {ArgumentError} for a reranker */
function checkNoHead(file: ModelFile, architecture: Architecture): void {
  const field = headTensor(file, architecture);
  if (field === undefined) return;
  throw new ArgumentError({
    argument: 'model',
    expected: 'an embedding or generative model',
    actual: `one with a classification head (${field}), which loadReranker loads`,
  });
}

/** @throws {FormatError} for a GGUF file that declares a pooling other than that of rerankers */
export function checkRankPooling({ format, fields }: ModelFile): void {
  if (format !== 'gguf') return;
  refuseSettings(fields, { [`${fields.string('general.architecture')}.pooling_type`]: [0, rankPooling] });
}

/** The pooling type of a GGUF file; `undefined` when it does not declare one. */
export function storedPooling({ format, fields }: ModelFile): Pooling | undefined {
  if (format !== 'gguf') return undefined;
  const key = `${fields.string('general.architecture')}.pooling_type`;
  if (!fields.has(key)) return undefined;
  const type = fields.integer(key);
  if (type === 0) return undefined;
  const pooling = ggufPoolings[type - 1];
  if (type === rankPooling) throw fields.refusal(key, 'an embedding model; loadReranker loads rerankers', type);
  if (pooling === undefined) throw fields.refusal(key, '0 (none), 1 (mean), 2 (cls) or 3 (last)', type);
  return pooling;
}

/** Poolings by `pooling_type` of GGUF files, from 1 on. */
const ggufPoolings: readonly Pooling[] = ['mean', 'cls', 'last'];

/** `pooling_type` of rerankers in GGUF files. */
export const rankPooling = 4;

/** @throws {FormatError} for an architecture that is not supported */
export function architectureOf(file: ModelFile): Architecture {
  const { format, fields } = file;
  const isGguf = format === 'gguf';
  const field = isGguf ? 'general.architecture' : 'model_type';
  const name = fields.raw(field);
  const namesOf = (architecture: Architecture): readonly string[] =>
    isGguf ? architecture.ggufNames : architecture.hubNames;
  const isFound = (candidate: Architecture): boolean =>
    namesOf(candidate).includes(name as string) && candidate.accepts?.(file) !== false;
  const found = architectures.find(isFound);
  if (found !== undefined) return found;
  const families = architectures.map((architecture) => architecture.name);
  const reason = typeof name === 'string' ? `: ${whatIsMissing(name, families)}` : '';
  const known = [...new Set(architectures.flatMap(namesOf))].join(', ');
  throw new FormatError({
    source: fields.source,
    field,
    message: `architecture ${describeValue(name)} is not supported${reason}; expected one of ${known}`,
  });
}
