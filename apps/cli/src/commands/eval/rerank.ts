/** `winnow eval rerank`: how well a reranker ranks sentence pairs. */
import type { Command } from 'commander';
import { evaluateReranking, formatReranking, parseSentencePairs } from '@winnow/evaluation';
import type { CommandContext, CommandHost } from '../command-host.js';
import { UsageError } from '../../errors/errors.js';
import { formatJson } from '../../terminal/format.js';
import { displayName } from '../../models/model-location.js';
import { openReranker } from '../../models/open-embedding-model.js';
import { readText } from '../../terminal/read-text.js';
import { addGroup, flag, numberOption, numberRules } from '../../flags/builders.js';
import { describe } from '../../flags/help.js';
import { addModelOption, addOutputOptions, chooseModel } from '../../flags/load.js';
import {
  addRerankingOptions,
  rerankerLoadOptionsOf,
  rerankOptionsOf,
  type RerankingFlags,
} from '../../flags/reranking.js';

interface EvalRerankFlags extends RerankingFlags {
  readonly data: string;
  readonly candidates: number;
}

const examples = `
Examples:
  $ winnow eval rerank ./bge-reranker-v2-m3 --data stsbenchmark/sts-test.csv
  $ winnow eval rerank qwen3-reranker.gguf --data pairs.jsonl --instruction 'Find sentences of equal meaning' --json

The data is that of winnow eval sts. Pairs are relevance: the first sentence is the query, the second a document. The result is
the Spearman correlation of the model's scores with the human ones, and the mean reciprocal rank of the second sentence
among those of other pairs, for pairs with a human score from 4 on.
`;

/** @param evaluation the parent command */
export function registerEvalRerank(evaluation: Command, host: CommandHost): void {
  const command = evaluation.enablePositionalOptions().command('rerank').argument('[model]', 'a reranker');
  addGroup(addModelOption(command), {
    heading: 'Evaluation',
    common: [
      flag('--data <path>', 'file with sentence pairs, - for stdin').makeOptionMandatory(),
      numberOption('--candidates <n>', 'documents per query', numberRules.count).default(10),
    ],
  });
  addOutputOptions(addRerankingOptions(command), 'print one JSON object');
  describe(command, 'Evaluates a reranker on sentence pairs.', examples);
  command.action((model: string | undefined, flags: EvalRerankFlags) =>
    host.run(flags, (context) => evaluate(chooseModel(model, flags.model), flags, context)),
  );
}

async function evaluate(modelName: string | undefined, flags: EvalRerankFlags, context: CommandContext): Promise<void> {
  const { io, signal, progress, out } = context;
  if (modelName === undefined) throw new UsageError('MODEL: expected a reranker, got none');
  const text = (await readText(io, { file: flags.data }, signal)) ?? '';
  const pairs = parseSentencePairs(flags.data, text);
  await using model = await openReranker(modelName, rerankerLoadOptionsOf(flags), context);
  const report = await evaluateReranking(model, pairs, {
    ...rerankOptionsOf(flags),
    numCandidates: flags.candidates,
    signal,
    onProgress: ({ rankedPairs, totalPairs }) => progress.show('rerank', rankedPairs, totalPairs, 'texts'),
  });
  progress.clear();
  const head = { model: displayName(modelName, model.name), backend: model.backend };
  await out.write(flags.json === true ? formatJson({ ...head, ...report }) : formatReranking(report));
}
