/**
 * `pnpm release --dry-run`: checks, builds, packs and runs what would be published. Without the flag, publishes it after
 * that: first the packages of native kernels in `--native FOLDER`, on which `@winnow/native` depends.
 */
import { readdirSync, rmSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { toolEnvironment } from './environment.mjs';
import { buildPublic, publicPackages, taskIntegrations } from './integrations.mjs';
import { fail, root, say } from './log.mjs';
import { nativeManifest, nativeObstacles, nativePackages, packOwnPlatform } from './native-packages.mjs';
import { runThrough } from './process.mjs';
import { npmCommand } from './tools.mjs';
import { turbo } from './turbo.mjs';

const usage = 'usage: pnpm release [--dry-run] [--native FOLDER]';

/** What a program prints; undefined when it fails. */
function outputOf(tools, program) {
  const [command, ...commandArguments] = program;
  const outcome = spawnSync(command, commandArguments, { cwd: root, env: toolEnvironment(tools), encoding: 'utf8' });
  return outcome.status === 0 ? outcome.stdout.trim() : undefined;
}

/** Why nothing can be published now; each with its remedy. */
export function obstacles(tools) {
  const found = [];
  const changes = outputOf(tools, ['git', 'status', '--porcelain']);
  if (changes === undefined) found.push('this is no git checkout');
  else if (changes !== '') found.push('there are uncommitted changes: commit them');
  const changesets = readdirSync(join(root, '.changeset')).filter((file) => file.endsWith('.md'));
  if (changesets.length > 0) {
    found.push(
      `changesets without a version: ${changesets.length}; run "pnpm changeset version" and commit the result`,
    );
  }
  if (outputOf(tools, [...npmCommand(), 'whoami']) === undefined) {
    found.push('npm is not logged in to its registry: run "npm login"');
  }
  return found;
}

/** Files that an earlier build left would be packed, too. */
function removeBuilds() {
  for (const { folder } of publicPackages()) rmSync(join(folder, 'dist'), { recursive: true, force: true });
}

/** The first exit code that is not 0 ends the release. */
async function step(title, run) {
  say(`release: ${title} ...`);
  const code = await run();
  if (code !== 0) fail(`release: ${title} failed; nothing was published`, code);
}

/** A rehearsal also writes what ran to the guide, so that it is part of what is published. */
async function checkAll(tools, isDryRun) {
  const gates = join(root, 'tools', 'gates', 'src', 'main.ts');
  const gate = (name) => () => runThrough(tools.node, [gates, name], { cwd: root, env: toolEnvironment(tools) });
  await step('changesets', gate('changesets'));
  await step('workspace', gate('workspace'));
  await step('build', async () => {
    await buildPublic(tools, removeBuilds);
    return 0;
  });
  const filters = publicPackages().map(({ name }) => `--filter=${name}`);
  await step('gates of the packages', () =>
    turbo(tools, ['run', 'gates', '--continue', '--output-logs=errors-only', ...filters]),
  );
  await step('fresh projects', () => taskIntegrations(tools, isDryRun ? ['--record'] : []));
}

/** @returns undefined for arguments that there are not */
export function releaseOptions(rest) {
  try {
    const { values } = parseArgs({
      args: rest,
      options: { 'dry-run': { type: 'boolean', default: false }, native: { type: 'string' } },
    });
    return { isDryRun: values['dry-run'], nativeFolder: values.native };
  } catch {
    return undefined;
  }
}

/** The packages of native kernels; a release needs those of all platforms, a rehearsal says which it lacks. */
async function checkNative(tools, { isDryRun, nativeFolder }) {
  const packages = nativePackages(nativeFolder ?? (isDryRun ? await packOwnPlatform(tools) : ''));
  const found = nativeObstacles(packages, nativeManifest());
  if (found.length > 0 && (!isDryRun || nativeFolder !== undefined)) {
    fail(`nothing can be published:\n  ${found.join('\n  ')}`);
  }
  for (const obstacle of found) say(`release: native kernels: ${obstacle}`);
  return packages;
}

async function publishNative(tools, packages, isDryRun) {
  const [npm, ...npmArguments] = npmCommand();
  for (const { path } of packages) {
    const flags = isDryRun ? ['pack', '--dry-run', path] : ['publish', path, '--access', 'public'];
    await step(flags.join(' '), () =>
      runThrough(npm, [...npmArguments, ...flags], { cwd: root, env: toolEnvironment(tools) }),
    );
  }
}

export async function taskRelease(tools, rest) {
  const options = releaseOptions(rest);
  if (options === undefined) return fail(`unknown argument in "${rest.join(' ')}"; ${usage}`, 2);
  const { isDryRun } = options;
  if (!isDryRun) {
    const found = obstacles(tools);
    if (found.length > 0) fail(`nothing can be published:\n  ${found.join('\n  ')}`);
  }
  const native = await checkNative(tools, options);
  await checkAll(tools, isDryRun);
  for (const { manifest } of native) {
    process.stdout.write(`${isDryRun ? 'would publish' : 'publishes'} ${manifest.name} ${manifest.version}\n`);
  }
  for (const { name, version } of publicPackages()) {
    process.stdout.write(`${isDryRun ? 'would publish' : 'publishes'} ${name} ${version}\n`);
  }
  await publishNative(tools, native, isDryRun);
  if (isDryRun) return 0;
  const changeset = join(root, 'node_modules', '@changesets', 'cli', 'bin.js');
  await step('publish', () =>
    runThrough(tools.node, [changeset, 'publish'], { cwd: root, env: toolEnvironment(tools) }),
  );
  say('release: published; push the tags with "git push --follow-tags"');
  return 0;
}
