/** LangChain embeddings on a loaded embedding model of the engine. */
import { Embeddings, type EmbeddingsParams } from '@langchain/core/embeddings';
import type { EmbeddingModel, EmbedOptions, TextOverflow } from '@winnow/engine';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface WinnowEmbeddingsFields extends EmbeddingsParams {
  /** A loaded model, owned by the caller. */
  model: EmbeddingModel;
  /** Whether to normalize vectors to length 1. Default true, unless the model uses unnormalized dot products. */
  normalize?: boolean;
  /** Number of leading dimensions to keep, for Matryoshka models. Default: as the model declares, else all. */
  dimensions?: number;
  /** How to handle texts beyond the model's context. Default `error`. */
  overflow?: TextOverflow;
  /** Prefix of queries. Default: the model's prompt `query` if it has one, else its default prompt. */
  queryPrompt?: string;
  /** Prefix of documents. Default: the model's prompt `document` if it has one, else its default prompt. */
  documentPrompt?: string;
}

const fieldNames: OptionNames<WinnowEmbeddingsFields> = {
  model: true,
  normalize: true,
  dimensions: true,
  overflow: true,
  queryPrompt: true,
  documentPrompt: true,
  maxConcurrency: true,
  maxRetries: true,
  onFailedAttempt: true,
};

/** Concurrent calls are serialized. */
export class WinnowEmbeddings extends Embeddings {
  readonly model: EmbeddingModel;
  readonly #options: EmbedOptions;
  readonly #prompts: Readonly<Record<'query' | 'document', string | undefined>>;

  /** @throws {UnknownOptionError} for a field that does not exist */
  constructor(fields: WinnowEmbeddingsFields) {
    checkOptions(fields, fieldNames);
    const { model, normalize, dimensions, overflow, queryPrompt, documentPrompt, ...rest } = fields;
    super(rest);
    this.model = model;
    this.#options = {
      ...(normalize === undefined ? {} : { normalize }),
      ...(dimensions === undefined ? {} : { dimensions }),
      ...(overflow === undefined ? {} : { overflow }),
    };
    this.#prompts = { query: queryPrompt, document: documentPrompt };
  }

  override async embedDocuments(documents: string[]): Promise<number[][]> {
    return this.#embed(documents, 'document');
  }

  override async embedQuery(document: string): Promise<number[]> {
    const [vector] = await this.#embed([document], 'query');
    return vector as number[];
  }

  async #embed(texts: readonly string[], kind: 'query' | 'document'): Promise<number[][]> {
    if (texts.length === 0) return [];
    const vectors = await this.model.embed(texts, { ...this.#options, ...this.#promptFor(kind) });
    return vectors.map((vector) => Array.from(vector));
  }

  #promptFor(kind: 'query' | 'document'): Pick<EmbedOptions, 'prompt' | 'promptName'> {
    const prompt = this.#prompts[kind];
    if (prompt !== undefined) return { prompt };
    return Object.hasOwn(this.model.prompts, kind) ? { promptName: kind } : {};
  }
}
