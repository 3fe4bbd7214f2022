/** `winnow eval sts`: how well an embedding model ranks sentence pairs. */
import type { Command } from 'commander';
import { evaluateSts, formatSts, parseSentencePairs } from '@winnow/evaluation';
import type { CommandContext, CommandHost } from '../command-host.js';
import { formatJson } from '../../terminal/format.js';
import { displayName } from '../../models/model-location.js';
import { readText } from '../../terminal/read-text.js';
import { addGroup, flag } from '../../flags/builders.js';
import { describe } from '../../flags/help.js';
import { addModelOption, addOutputOptions, chooseModel } from '../../flags/load.js';
import {
  addEmbeddingOptions,
  embeddingLoadOptionsOf,
  embedOptionsOf,
  embeddingError,
  type EmbeddingFlags,
} from '../../flags/embedding.js';
import { openEmbeddingModel } from '../../models/open-embedding-model.js';

interface EvalStsFlags extends EmbeddingFlags {
  readonly data: string;
}

const examples = `
Examples:
  $ winnow eval sts all-MiniLM-L6-v2.Q8_0.gguf --data stsbenchmark/sts-test.csv
  $ winnow eval sts ./bge-small-en-v1.5 --data pairs.jsonl --json

The data is the STS benchmark (https://ixa2.si.ehu.eus/stswiki), tab-separated lines of score, sentence, sentence, or JSON
lines with sentence1, sentence2 and score. The result is the Spearman correlation of cosines with human scores, as in
MTEB.
`;

/** @param evaluation the parent command */
export function registerEvalSts(evaluation: Command, host: CommandHost): void {
  const command = evaluation
    .enablePositionalOptions()
    .command('sts')
    .argument('[model]', 'the model (default: the demo model, with --pooling)');
  const data = flag('--data <path>', 'file with sentence pairs, - for stdin').makeOptionMandatory();
  addGroup(addModelOption(command), { heading: 'Evaluation', common: [data] });
  addOutputOptions(addEmbeddingOptions(command), 'print one JSON object');
  describe(command, 'Evaluates an embedding model on sentence pairs.', examples);
  command.action((model: string | undefined, flags: EvalStsFlags) =>
    host.run(flags, (context) => evaluate(chooseModel(model, flags.model), flags, context)),
  );
}

async function evaluate(modelName: string | undefined, flags: EvalStsFlags, context: CommandContext): Promise<void> {
  const { io, signal, progress, out } = context;
  const text = (await readText(io, { file: flags.data }, signal)) ?? '';
  const pairs = parseSentencePairs(flags.data, text);
  await using model = await openEmbeddingModel(modelName, embeddingLoadOptionsOf(flags), context);
  const report = await evaluateSts(model, pairs, {
    ...embedOptionsOf(flags),
    signal,
    onProgress: ({ embeddedTexts, totalTexts }) => progress.show('embed', embeddedTexts, totalTexts, 'texts'),
  }).catch((error: unknown) => {
    throw embeddingError(error);
  });
  progress.clear();
  const { backend, pooling } = model;
  const head = { model: displayName(modelName, model.name), backend, pooling };
  await out.write(flags.json === true ? formatJson({ ...head, ...report }) : formatSts(report));
}
