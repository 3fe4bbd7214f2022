/** `winnow pull`, `winnow list` and `winnow rm`: the models of the hub on this computer. */
import type { Command } from 'commander';
import type { CommandContext, CommandHost } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { refuse } from '../flags/parse-values.js';
import { addGroup, flag } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addOutputOptions, type CommonFlags } from '../flags/load.js';
import { parseModelReference } from '../models/model-location.js';
import { locateModel } from '../models/open-model.js';
import { formatBytes, formatJson, formatTable } from '../terminal/format.js';
import type { HubRequest } from '../terminal/io.js';

const pullExamples = `
Examples:
  $ winnow pull hf:owner/name
  $ winnow pull hf:owner/name:q4_k_m hf:owner/other@main

Prints the path of each model. An interrupted download continues where it stopped. Files are kept in the cache of the
Hugging Face tools (HF_HUB_CACHE, HF_HOME).
`;

const removeExamples = `
Examples:
  $ winnow rm hf:owner/name

Removes all revisions and files of a repository, for the other Hugging Face tools as well.
`;

export function registerModels(program: Command, host: CommandHost): void {
  const pull = program.command('pull').argument('<models...>', 'repositories of the hub, such as hf:owner/name');
  addGroup(pull, { heading: 'Output', common: [flag('-q, --quiet', 'print only paths and errors')] });
  describe(pull, 'Downloads models from the hub.', pullExamples);
  pull.action((models: readonly string[], flags: CommonFlags) =>
    host.run(flags, (context) => pullModels(models, context)),
  );
  const list = addOutputOptions(program.command('list'), 'print one JSON array');
  describe(list, 'Lists the models of the hub on this computer.', '');
  list.action((flags: CommonFlags) => host.run(flags, (context) => listModels(flags, context)));
  const remove = program.command('rm').argument('<models...>', 'repositories of the hub, such as hf:owner/name');
  addGroup(remove, { heading: 'Output', common: [flag('-q, --quiet', 'print only errors to stderr')] });
  describe(remove, 'Removes models of the hub from this computer.', removeExamples);
  remove.action((models: readonly string[], flags: CommonFlags) =>
    host.run(flags, (context) => removeModels(models, context)),
  );
}

/** @throws {UsageError} for anything but a repository of the hub */
function requestOf(model: string): HubRequest {
  const reference = parseModelReference(model);
  if (reference.kind === 'hub') return reference.request;
  throw refuse('MODEL', 'a repository of the hub, such as hf:owner/name', model);
}

async function pullModels(models: readonly string[], context: CommandContext): Promise<void> {
  for (const model of models) requestOf(model); // before anything is downloaded
  for (const model of models)
    await context.out.write(`${String(await locateModel(model, context, { mmproj: true }))}\n`);
}

async function listModels(flags: CommonFlags, { io, out }: CommandContext): Promise<void> {
  const repos = await (await io.hubCache()).listCachedRepos();
  if (flags.json === true) return out.write(formatJson(repos));
  const rows = repos.map(({ repo, sizeBytes, incompleteBytes, revisions }) => [
    repo,
    formatBytes(sizeBytes),
    incompleteBytes === 0 ? '' : `${formatBytes(incompleteBytes)} unfinished`,
    revisions.join(', '),
  ]);
  if (rows.length > 0) await out.write(formatTable([['model', 'size', 'download', 'revisions'], ...rows]));
}

async function removeModels(models: readonly string[], { io, warn }: CommandContext): Promise<void> {
  const requests = models.map(requestOf);
  const partial = requests.findIndex(({ file, revision }) => file !== undefined || revision !== undefined);
  if (partial >= 0) throw refuse('MODEL', 'a whole repository, such as hf:owner/name', models[partial] as string);
  const cache = await io.hubCache();
  for (const { repo } of requests) {
    const removed = await cache.removeCachedRepo(repo);
    if (removed === undefined)
      throw new UsageError(`MODEL: ${repo} is not on this computer; winnow list shows what is`);
    warn(`removed ${repo}: ${formatBytes(removed.sizeBytes)}`);
  }
}
