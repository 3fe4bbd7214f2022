/** Environment of the tools: our Node and pnpm first, no telemetry, nothing of the npm that called us. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { delimiter, dirname, join, resolve } from 'node:path';
import { root, toolchainFolder } from './log.mjs';

const fromNpm =
  /^npm_(lifecycle_|package_|execpath$|node_execpath$|command$|config_(prefix|local_prefix|global_prefix)$)/;
const inRecursion = /^(pnpm_package_name|PNPM_SCRIPT_SRC_DIR|INIT_CWD)$/;

/** For `npm install` and `pnpm install`. */
export function cleanEnvironment() {
  const environment = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (!fromNpm.test(name) && !inRecursion.test(name)) environment[name] = value;
  }
  return { ...environment, DO_NOT_TRACK: '1', NO_UPDATE_NOTIFIER: '1', TURBO_TELEMETRY_DISABLED: '1' };
}

/** For turbo and the tools it starts. */
export function toolEnvironment(tools) {
  const environment = cleanEnvironment();
  const path = [dirname(tools.node), dirname(tools.pnpm), process.env.PATH ?? ''].join(delimiter);
  return { ...environment, PATH: path, TURBO_NO_UPDATE_NOTIFIER: '1' };
}

/**
 * For tests: tells turbo which Node, which browser and which state of the data beside the checkout a result belongs to.
 * Names, sizes and times, because hashing all bytes would cost more than the tests of an unchanged package. The many
 * processes of tests share what Node compiled, which halves their start-up.
 */
export function taskEnvironment(tools) {
  return {
    ...toolEnvironment(tools),
    NODE_COMPILE_CACHE: join(toolchainFolder, 'compile-cache'),
    WINNOW_NODE: tools.nodeVersion,
    WINNOW_SHARED_STAMP: sharedStamp(),
    WINNOW_CHROMIUM_STAMP: chromiumStamp(),
    WINNOW_COMPILER_STAMP: compilerStamp(),
    WINNOW_TEST_REPORT: '1',
  };
}

/** Tests in a browser that were skipped for want of one must run when there is one. */
function chromiumStamp() {
  const { WINNOW_CHROMIUM: named } = process.env;
  const paths = named ? [named] : ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'];
  const found = paths.flatMap((path) => {
    const { size, mtimeMs } = statSync(path, { throwIfNoEntry: false }) ?? {};
    return size === undefined ? [] : [`${path}:${size}:${mtimeMs}`];
  });
  return found.length === 0 ? 'absent' : found.join();
}

/** Native kernels that were skipped for want of a compiler must be tested when there is one. */
function compilerStamp() {
  const { status, stdout } = spawnSync(process.env.CXX || 'c++', ['--version'], { encoding: 'utf8' });
  return status === 0 ? stdout.split('\n')[0] : 'absent';
}

function sharedStamp() {
  const folder = process.env.WINNOW_SHARED ? resolve(process.env.WINNOW_SHARED) : join(root, '..', 'shared');
  const hash = createHash('sha256');
  let numFiles = 0;
  const visit = (path) => {
    for (const entry of readdirSync(path, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const child = join(path, entry.name);
      if (entry.isDirectory()) visit(child);
      else if (entry.isFile()) {
        const { size, mtimeMs } = statSync(child);
        hash.update(`${child.slice(folder.length)}\0${size}\0${mtimeMs}\n`);
        numFiles += 1;
      }
    }
  };
  try {
    for (const part of ['data', 'assets', 'spec']) {
      try {
        visit(join(folder, part));
      } catch (error) {
        if (error.code !== 'ENOENT') throw error;
      }
    }
  } catch (error) {
    return `unreadable:${error.code}`;
  }
  return numFiles === 0 ? 'absent' : hash.digest('hex').slice(0, 16);
}
