/** The host of tests with native kernels, and the levels that they use. */
import { createRequire } from 'node:module';
import { nativeLevels, type NativeAddon, type NativeChoice, type NativeLevel, type NativeResult } from '@winnow/native';
import { openNative } from '@winnow/native/node';
import { createHost } from '../src/host/host.node.js';
import type { WasmHost } from '../src/index.js';

/** The addon to test, such as one with sanitizers. Default: the one of this machine. */
const addon = process.env['WINNOW_TEST_ADDON'];

/** Emulators cannot start a child process for the trial of an addon. */
const isTried = process.env['WINNOW_TEST_EMULATED'] === undefined;

const open = async (choice: NativeChoice = true): Promise<NativeResult> =>
  isTried ? openNative(choice, addon === undefined ? {} : { path: addon }) : openHere(choice);

/** Opens a level of the addon without a trial. */
function openHere(choice: NativeChoice): NativeResult {
  const path = addon as string;
  const { levels, attach } = createRequire(import.meta.url)(path) as NativeAddon;
  const level = nativeLevels.find((each) => each === choice && levels().includes(each));
  return level === undefined
    ? {}
    : { kernels: { level, path, enter: () => () => undefined, attach: (bytes) => attach(bytes, level) } };
}

export const nativeHost: WasmHost = { ...createHost(), openNative: open };

/** Levels of this machine, best first; none where the addon has not been built. */
export async function usableLevels(): Promise<readonly NativeLevel[]> {
  const found: NativeLevel[] = [];
  for (const level of nativeLevels) {
    if ((await open(level)).kernels !== undefined) found.push(level);
  }
  return found;
}
