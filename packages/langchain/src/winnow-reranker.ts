/** A document compressor of LangChain on a loaded reranker of the engine. */
import type { Callbacks } from '@langchain/core/callbacks/manager';
import { Document, type DocumentInterface } from '@langchain/core/documents';
import { BaseDocumentCompressor } from '@langchain/core/retrievers/document_compressors';
import type { Reranker, RerankOptions } from '@winnow/engine';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface WinnowRerankerFields extends Pick<RerankOptions, 'topN' | 'overflow' | 'normalize' | 'instruction'> {
  /** A loaded reranker, owned by the caller. */
  model: Reranker;
}

const fieldNames: OptionNames<WinnowRerankerFields> = {
  model: true,
  topN: true,
  overflow: true,
  normalize: true,
  instruction: true,
};

/** Concurrent calls are serialized. */
export class WinnowReranker extends BaseDocumentCompressor {
  readonly model: Reranker;
  readonly #options: RerankOptions;

  /** @throws {UnknownOptionError} for a field that does not exist */
  constructor(fields: WinnowRerankerFields) {
    checkOptions(fields, fieldNames);
    super();
    const { model, ...options } = fields;
    this.model = model;
    this.#options = options;
  }

  /** The `topN` best documents (default: all), best first, with the score as `metadata.relevanceScore`. */
  override async compressDocuments(
    documents: DocumentInterface[],
    query: string,
    _callbacks?: Callbacks,
  ): Promise<DocumentInterface[]> {
    const texts = documents.map(({ pageContent }) => pageContent);
    const ranked = await this.model.rerank(query, texts, this.#options);
    return ranked.map(({ index, score }) => {
      const { pageContent, metadata, id } = documents[index] as DocumentInterface;
      const own = { ...metadata, relevanceScore: score };
      return new Document({ pageContent, metadata: own, ...(id === undefined ? {} : { id }) });
    });
  }
}
