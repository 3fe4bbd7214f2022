/** Installs peers into a scratch folder: programs to compare with, never dependencies of the workspace. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { arch, platform } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const peerVersion = '3.22.1';
const wllamaVersion = '3.8.1';

/** The packages with the compiled library, by platform and architecture. */
const prebuilt: Readonly<Record<string, string>> = {
  'linux x64': 'linux-x64',
  'linux arm64': 'linux-arm64',
  'linux arm': 'linux-armv7l',
  'darwin x64': 'mac-x64',
  'darwin arm64': 'mac-arm64-metal',
  'win32 x64': 'win-x64',
  'win32 arm64': 'win-arm64',
};

/**
 * Installs node-llama-cpp unless it is installed already. CPU only, without compiling.
 * @returns the path of its entry module
 * @throws {Error} with instructions when it cannot be installed
 */
export async function installPeer(folder: string, say: (text: string) => void): Promise<string> {
  const library = prebuilt[`${platform()} ${arch()}`];
  if (library === undefined) {
    throw new Error(`node-llama-cpp has no prebuilt library for ${platform()} ${arch()}; run without --peer`);
  }
  const names = [`node-llama-cpp@${peerVersion}`, `@node-llama-cpp/${library}@${peerVersion}`];
  return install({ name: 'node-llama-cpp', version: peerVersion, names, entry: 'dist/index.js', folder, say });
}

/** Installs wllama in the same way. @returns the path of its module, which is next to `wasm/wllama.wasm` */
export function installWllama(folder: string, say: (text: string) => void): Promise<string> {
  const name = '@wllama/wllama';
  const names = [`${name}@${wllamaVersion}`];
  return install({ name, version: wllamaVersion, names, entry: 'esm/index.js', folder, say });
}

interface Installation {
  readonly name: string;
  readonly version: string;
  /** The package to install. */
  readonly names: readonly string[];
  /** Path within the package. */
  readonly entry: string;
  readonly folder: string;
  say(text: string): void;
}

/** Runs npm unless the package is installed already; install scripts are disabled. */
async function install({ name, version, names, entry: file, folder, say }: Installation): Promise<string> {
  const home = join(folder, `${name.replace(/^.*\//, '')}-${version}`);
  const entry = join(home, 'node_modules', name, file);
  const stamp = join(home, 'installed');
  if (existsSync(stamp) && existsSync(entry)) return entry;
  say(`installing ${name} ${version} into ${home}`);
  await mkdir(home, { recursive: true });
  await writeFile(join(home, 'package.json'), '{ "private": true }\n');
  const flags = ['--omit=optional', '--ignore-scripts', '--no-audit', '--no-fund', '--no-save', '--loglevel=error'];
  try {
    const isWindows = platform() === 'win32';
    await promisify(execFile)(isWindows ? 'npm.cmd' : 'npm', ['install', ...names, ...flags], {
      cwd: home,
      shell: isWindows,
    });
  } catch (error) {
    const { stderr = '', message } = error as Error & { stderr?: string };
    const reason = (stderr.trim() || message).split('\n').slice(0, 5).join('\n');
    throw new Error(`${name} ${version} could not be installed; run without --peer.\n${reason}`, { cause: error });
  }
  if (!existsSync(entry)) throw new Error(`npm succeeded, but ${entry} is missing; delete ${home} and try again`);
  await writeFile(stamp, `${version}\n`);
  return entry;
}
