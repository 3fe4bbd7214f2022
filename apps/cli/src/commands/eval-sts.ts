/** `winnow eval sts`: how well an embedding model orders pairs of sentences. */
import type { Command } from 'commander';
import { evaluateSts, formatSts, parseSentencePairs } from '@winnow/evaluation';
import type { CommandContext, CommandHost } from '../command-host.js';
import { addEmbeddingOptions, embedOptionsOf, openEmbeddingModel, type EmbeddingFlags } from '../embedding-options.js';
import { formatJson } from '../format.js';
import { displayName } from '../model-location.js';
import { addModelOption, addOutputOptions, chooseModel } from '../options.js';
import { readText } from '../read-text.js';

interface EvalStsFlags extends EmbeddingFlags {
  readonly data: string;
}

const examples = `
Examples:
  $ winnow eval sts all-MiniLM-L6-v2.Q8_0.gguf --data stsbenchmark/sts-test.csv
  $ winnow eval sts ./bge-small-en-v1.5 --data pairs.jsonl --json

The data: the STS benchmark (https://ixa2.si.ehu.eus/stswiki, files with tabs), lines of score, sentence, sentence with
tabs between them, or JSON lines with sentence1, sentence2 and score. Reported is the rank correlation (Spearman) of the
cosines with the scores of people, as MTEB does.
`;

/** @param evaluation the command that this is a part of */
export function registerEvalSts(evaluation: Command, host: CommandHost): void {
  const command = evaluation
    .enablePositionalOptions()
    .command('sts')
    .argument('[model]', 'the model; without it the demo model, with --pooling');
  command.description('Measures an embedding model on pairs of sentences.').addHelpText('after', examples);
  addModelOption(command).requiredOption('--data <path>', 'the pairs, - for stdin');
  addOutputOptions(addEmbeddingOptions(command), 'print one JSON object');
  command.action((model: string | undefined, flags: EvalStsFlags) =>
    host.run(flags, (context) => evaluate(chooseModel(model, flags.model), flags, context)),
  );
}

async function evaluate(modelName: string | undefined, flags: EvalStsFlags, context: CommandContext): Promise<void> {
  const { io, signal, progress, out } = context;
  const text = (await readText(io, { file: flags.data }, signal)) ?? '';
  const pairs = parseSentencePairs(flags.data, text);
  await using model = await openEmbeddingModel(modelName, flags, context);
  const report = await evaluateSts(model, pairs, {
    ...embedOptionsOf(flags),
    signal,
    onProgress: ({ embeddedTexts, totalTexts }) => progress.show('embed', embeddedTexts, totalTexts, 'tokens'),
  });
  progress.clear();
  const { backend, pooling } = model;
  const head = { model: displayName(modelName, model.name), backend, pooling };
  await out.write(flags.json === true ? formatJson({ ...head, ...report }) : formatSts(report));
}
