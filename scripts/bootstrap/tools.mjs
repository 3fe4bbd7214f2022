/** Node and pnpm: the running Node when it is new enough, otherwise one from the npm registry below `.toolchain/`. */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { cleanEnvironment } from './environment.mjs';
import { withLock } from './lock.mjs';
import { fail, root, say, seconds, toolchainFolder } from './log.mjs';
import { runLogged } from './process.mjs';

const nodeVersion = '24.21.0';
const windows = process.platform === 'win32';

/** What the build tools need (tsup 9: ^22.18 || ^24.11 || >=26); the packages themselves run on 22.12. */
export function isNodeNewEnough(version) {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  if (major === 22) return minor >= 18;
  if (major === 24) return minor >= 11;
  return major >= 26;
}

function pnpmVersion() {
  const { packageManager = '' } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const match = /^pnpm@(\d+\.\d+\.\d+)/.exec(packageManager);
  return match ? match[1] : fail('package.json: packageManager must read pnpm@<version>');
}

/** npm as a JavaScript file of the running Node where it can be found, else from PATH. */
export function npmCommand() {
  const fromCaller = process.env.npm_execpath ?? '';
  const nodeFolder = dirname(process.execPath);
  const candidates = [
    fromCaller.endsWith('npm-cli.js') ? fromCaller : '',
    join(nodeFolder, 'node_modules', 'npm', 'bin', 'npm-cli.js'),
    join(nodeFolder, '..', 'lib', 'node_modules', 'npm', 'bin', 'npm-cli.js'),
  ];
  const file = candidates.find((path) => path !== '' && existsSync(path));
  return file ? [process.execPath, file] : [windows ? 'npm.cmd' : 'npm'];
}

/** Installs one exact package into its own folder; the folder appears complete or not at all. */
async function installTool({ title, name, version, folder, binary }) {
  const final = join(toolchainFolder, folder);
  if (existsSync(join(final, binary))) return join(final, binary);
  return withLock('tools', async () => {
    if (existsSync(join(final, binary))) return join(final, binary);
    for (const left of readdirSync(toolchainFolder).filter((entry) => entry.startsWith('new-'))) {
      rmSync(join(toolchainFolder, left), { recursive: true, force: true });
    }
    const startMs = Date.now();
    say(`fetching ${title} ${version} from the npm registry (once) ...`);
    const fresh = join(toolchainFolder, `new-${folder}`);
    mkdirSync(fresh, { recursive: true });
    const flags = ['--no-save', '--no-audit', '--no-fund', '--no-package-lock', '--include=optional'];
    const [command, ...before] = npmCommand();
    await runLogged(command, [...before, 'install', '--prefix', fresh, ...flags, `${name}@${version}`], {
      cwd: fresh,
      env: cleanEnvironment(),
      logFile: join(toolchainFolder, 'logs', `${folder}.log`),
      remedy: `npm could not install ${name}@${version}; check the connection to the npm registry, then run again`,
    });
    if (!existsSync(join(fresh, binary))) {
      fail(
        `npm installed ${name}@${version} without its program; allow its install script or optional packages and run again`,
      );
    }
    rmSync(final, { recursive: true, force: true });
    renameSync(fresh, final);
    say(`${title} ${version} ready after ${seconds(startMs)}`);
    return join(final, binary);
  });
}

async function ensureNode() {
  if (isNodeNewEnough(process.versions.node)) return process.execPath;
  // The platform package holds the executable itself and, other than the package `node`, needs no install script.
  const name = `node-${windows ? 'win' : process.platform}-${process.arch}`;
  const binary = join('node_modules', name, 'bin', windows ? 'node.exe' : 'node');
  const folder = `node-${nodeVersion}-${process.platform}-${process.arch}`;
  const existed = existsSync(join(toolchainFolder, folder, binary));
  const node = await installTool({ title: 'Node', name, version: nodeVersion, folder, binary });
  if (!existed) {
    const probe = spawnSync(node, ['--version'], { encoding: 'utf8' });
    if (probe.status !== 0) {
      rmSync(join(toolchainFolder, folder), { recursive: true, force: true });
      fail(`Node ${nodeVersion} from npm does not run here; install Node 24 yourself and put it first in PATH`);
    }
  }
  return node;
}

/** Paths of the programs `node` and `pnpm`. */
export async function ensureTools() {
  const version = pnpmVersion();
  const node = await ensureNode();
  const binary = join('node_modules', '.bin', windows ? 'pnpm.cmd' : 'pnpm');
  const folder = `pnpm-${version}-${process.platform}-${process.arch}`;
  const pnpm = await installTool({ title: 'pnpm', name: 'pnpm', version, folder, binary });
  return { node, nodeVersion: node === process.execPath ? process.versions.node : nodeVersion, pnpm };
}
