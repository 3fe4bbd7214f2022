/** `winnow rerank`: documents in the order of their relevance to a query. */
import type { Command } from 'commander';
import type { RankedDocument, Reranker } from '@winnow/engine';
import type { CommandContext, CommandHost } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { printable } from '../errors/printable.js';
import { displayName } from '../models/model-location.js';
import { readLines } from '../terminal/read-text.js';
import { addGroup, flag, numberOption, numberRules } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addModelOption, addOutputOptions, chooseModel } from '../flags/load.js';
import {
  addRerankingOptions,
  rerankerLoadOptionsOf,
  rerankOptionsOf,
  type RerankingFlags,
} from '../flags/reranking.js';
import { openReranker } from '../models/open-embedding-model.js';

interface RerankFlags extends RerankingFlags {
  readonly query?: string;
  readonly document?: readonly string[];
  readonly file?: string;
  readonly topN?: number;
  readonly normalize: boolean;
}

const examples = `
Examples:
  $ winnow rerank ./bge-reranker-v2-m3 --query 'What is a panda?' -d 'A bear of China.' 'A kind of bread.'
  $ winnow rerank ./ms-marco-MiniLM-L6-v2 --query 'storms at sea' -f lines.txt --top-n 3
  $ winnow rerank qwen3-reranker.gguf --query 'storms at sea' --json --overflow truncate < lines.txt

Each line of a file is a document. The output has one line per document, the best first: score, number of the document from
0, document; --json prints one object. Scores are between 0 and 1.
`;

export function registerRerank(program: Command, host: CommandHost): void {
  const command = program.command('rerank').argument('[model]', 'a reranker');
  addGroup(addModelOption(command), {
    heading: 'Texts',
    common: [
      flag('--query <text>', 'what the documents should answer'),
      flag('-d, --document <text...>', 'the documents'),
      flag('-f, --file <path>', 'file with one document per line, - for stdin'),
      numberOption('--top-n <n>', 'print the n best documents', numberRules.count),
    ],
  });
  addRerankingOptions(command);
  addOutputOptions(command, 'print one JSON object: results with index, score, document');
  addGroup(command, { heading: 'Output', advanced: [flag('--no-normalize', "print the model's logits as scores")] });
  describe(command, 'Ranks documents by their relevance to a query.', examples);
  command.action((model: string | undefined, flags: RerankFlags) =>
    host.run(flags, (context) => rerank(chooseModel(model, flags.model), flags, context)),
  );
}

async function rerank(modelName: string | undefined, flags: RerankFlags, context: CommandContext): Promise<void> {
  const { io, signal, progress, warn, out } = context;
  if (modelName === undefined) throw new UsageError('MODEL: expected a reranker, got none');
  const { query } = flags;
  if (query === undefined) throw new UsageError('--query: expected a text, got none');
  const { document: given, file } = flags;
  const documents = await readLines(io, { flagName: '--document', noun: 'documents', given, file }, signal);
  await using model = await openReranker(modelName, rerankerLoadOptionsOf(flags), context);
  const all = await model.rerank(query, documents, {
    ...rerankOptionsOf(flags),
    ...(flags.normalize ? {} : { normalize: false }),
    signal,
    onProgress: ({ rankedDocuments, totalDocuments }) =>
      progress.show('rerank', rankedDocuments, totalDocuments, 'texts'),
  });
  progress.clear();
  const numCut = all.filter(({ numDroppedTokens }) => numDroppedTokens > 0).length;
  if (numCut > 0) warn(`${numCut} of the ${all.length} documents were truncated to ${model.contextSize} tokens`);
  const ranked = all.slice(0, flags.topN);
  if (flags.json === true) {
    await out.write(`${JSON.stringify(report(displayName(modelName, model.name), model, query, documents, ranked))}\n`);
    return;
  }
  for (const { index, score } of ranked) {
    await out.write(`${score.toFixed(4)}\t${index}\t${printable(documents[index] as string)}\n`);
  }
}

function report(
  name: string,
  { backend, contextSize }: Reranker,
  query: string,
  documents: readonly string[],
  ranked: readonly RankedDocument[],
): unknown {
  return {
    model: name,
    backend,
    contextSize,
    query,
    results: ranked.map(({ index, score, numTokens, numDroppedTokens }) => ({
      index,
      score,
      document: documents[index],
      tokens: numTokens,
      droppedTokens: numDroppedTokens,
    })),
  };
}
