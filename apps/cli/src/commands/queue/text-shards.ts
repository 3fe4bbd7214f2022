/** Texts to embed, as jobs of a queue: some texts each, whose vectors come back as bytes. */
import type { EmbeddingModel, EmbedOptions, TextEmbedding } from '@winnow/engine';
import { JobFailure, type ClaimedJob, type JobError, type JobHandler } from '@winnow/jobs';
import { ArgumentError, CapacityError } from '@winnow/tensor';
import { lineInQueue } from './queued-work.js';

/** Queue of the texts for a model by its id. Undefined: for a worker's only embedding model. */
export function textQueueOf(modelId: string | undefined): string {
  return modelId === undefined ? 'default-texts' : `texts:${modelId}`;
}

export type ShardOptions = Pick<EmbedOptions, 'normalize' | 'overflow' | 'dimensions' | 'prompt' | 'promptName'>;

export interface TextShard {
  readonly texts: readonly string[];
  readonly options: ShardOptions;
}

export interface EmbeddedShard {
  /** Number of values of a vector; 0 if no text has one. */
  readonly dimensions: number;
  readonly numTokens: number;
  /** Number of texts that were cut. */
  readonly numTruncated: number;
  /** Little-endian 32-bit floats `[texts, dimensions]` in base64; NaN for texts that failed. */
  readonly vectors: string;
  readonly errors: readonly (Pick<JobError, 'code' | 'message'> & { readonly text: number })[];
}

/** A text that the model rejects fails alone; the others still get their vectors. */
export function textShardHandler(models: ReadonlyMap<string, EmbeddingModel>): JobHandler {
  return async (job: ClaimedJob, { signal }) => {
    const { texts, options } = JSON.parse(job.payload) as Partial<TextShard>;
    if (texts === undefined) throw lineInQueue(job.queue);
    const model = models.get(job.queue);
    if (model === undefined) {
      throw new JobFailure(
        { code: 'model_not_found', message: `no embedding model for ${job.queue}` },
        { retry: false },
      );
    }
    const all = await tryToEmbed(model, texts, { ...options, signal });
    if (Array.isArray(all)) return JSON.stringify(shardOf(all));
    const embedded: (TextEmbedding | Error)[] = [];
    for (const text of texts) {
      const one = await tryToEmbed(model, [text], { ...options, signal });
      embedded.push(...(Array.isArray(one) ? one : [one as Error]));
    }
    return JSON.stringify(shardOf(embedded));
  };
}

/** @returns the error if the texts caused it */
async function tryToEmbed(
  model: EmbeddingModel,
  texts: readonly string[],
  options: EmbedOptions,
): Promise<readonly TextEmbedding[] | Error> {
  try {
    return await model.embedTexts(texts, options);
  } catch (error) {
    if (CapacityError.isInstance(error) || ArgumentError.isInstance(error)) return error;
    throw error;
  }
}

function shardOf(embedded: readonly (TextEmbedding | Error)[]): EmbeddedShard {
  const done = embedded.filter((each): each is TextEmbedding => !(each instanceof Error));
  const dimensions = done[0]?.vector.length ?? 0;
  const vectors = Buffer.alloc(4 * dimensions * embedded.length);
  const errors: EmbeddedShard['errors'][number][] = [];
  for (const [text, each] of embedded.entries()) {
    const isFailed = each instanceof Error;
    if (isFailed) errors.push({ text, code: codeOf(each), message: each.message.replace(/^texts\[\d+\]/, 'text') });
    for (let i = 0; i < dimensions; i++) {
      vectors.writeFloatLE(isFailed ? Number.NaN : (each.vector[i] as number), 4 * (text * dimensions + i));
    }
  }
  return {
    ...{ dimensions, errors, vectors: vectors.toString('base64') },
    numTokens: done.reduce((sum, { numTokens }) => sum + numTokens, 0),
    numTruncated: done.filter(({ numDroppedTokens }) => numDroppedTokens > 0).length,
  };
}

function codeOf(error: Error): string {
  return CapacityError.isInstance(error) ? 'context_length_exceeded' : 'invalid_value';
}
