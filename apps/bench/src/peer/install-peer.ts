/** Brings node-llama-cpp into a scratch folder: a peer to measure against, never a dependency of the workspace. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { arch, platform } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export const peerVersion = '3.22.1';

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
 * Installs the package unless it is there already. Only npm is asked, only for the CPU library, and nothing is compiled.
 * @returns the path of its entry module
 * @throws {Error} that says what to do when it cannot be installed
 */
export async function installPeer(folder: string, say: (text: string) => void): Promise<string> {
  const home = join(folder, `node-llama-cpp-${peerVersion}`);
  const entry = join(home, 'node_modules', 'node-llama-cpp', 'dist', 'index.js');
  const stamp = join(home, 'installed');
  if (existsSync(stamp) && existsSync(entry)) return entry;
  const library = prebuilt[`${platform()} ${arch()}`];
  if (library === undefined) {
    throw new Error(`node-llama-cpp has no prebuilt library for ${platform()} ${arch()}; run without --peer`);
  }
  say(`installing node-llama-cpp ${peerVersion} into ${home}`);
  await mkdir(home, { recursive: true });
  await writeFile(join(home, 'package.json'), '{ "private": true }\n');
  const names = [`node-llama-cpp@${peerVersion}`, `@node-llama-cpp/${library}@${peerVersion}`];
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
    throw new Error(`node-llama-cpp ${peerVersion} could not be installed; run without --peer.\n${reason}`, {
      cause: error,
    });
  }
  if (!existsSync(entry)) throw new Error(`npm succeeded, but ${entry} is not there; delete ${home} and try again`);
  await writeFile(stamp, `${peerVersion}\n`);
  return entry;
}
