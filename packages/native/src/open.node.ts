/** Opens the native kernels: finds the addon, tries it in a child process, and loads it. Nothing here throws: WebAssembly replaces them. */
import { createRequire } from 'node:module';
import { nativeLevels, type NativeAddon, type NativeChoice, type NativeLevel, type NativeResult } from './addon.js';
import { findAddon, platformName } from './find.node.js';
import { messageOf, probe, type ProbeOptions } from './probe.node.js';

export interface OpenNativeOptions extends ProbeOptions {
  /** Path of the addon. Default: the one for this platform. */
  readonly path?: string;
}

/** The choice of `WINNOW_NATIVE`, or an error if it is invalid. */
export function choiceOfEnvironment(value: string | undefined = environmentVariable()): NativeChoice | Error {
  if (value === undefined || value === '' || value === 'auto') return 'auto';
  if (['off', 'false', '0'].includes(value)) return false;
  if (['on', 'true', '1'].includes(value)) return true;
  if (isLevel(value)) return value;
  return new Error(`WINNOW_NATIVE: expected off, on, auto, ${nativeLevels.join(', ')}, got "${value}"`);
}

/** Deno asks the user for permission to read the environment, which native kernels are not worth. */
function environmentVariable(): string | undefined {
  return process.versions['deno'] === undefined ? process.env['WINNOW_NATIVE'] : undefined;
}

function isLevel(value: string): value is NativeLevel {
  return (nativeLevels as readonly string[]).includes(value);
}

/** Opens the kernels that `choice` names. */
export async function openNative(choice: NativeChoice, options: OpenNativeOptions = {}): Promise<NativeResult> {
  try {
    return await open(choice, options);
  } catch (error) {
    return { refusal: messageOf(error) };
  }
}

async function open(choice: NativeChoice, options: OpenNativeOptions): Promise<NativeResult> {
  if (choice === false) return {};
  const unfit = unfitHost();
  if (unfit !== undefined) return choice === 'auto' ? {} : { refusal: unfit };
  const path = options.path ?? findAddon();
  if (path === undefined) return choice === 'auto' ? {} : { refusal: missingAddon(platformName()) };
  const { levels, refusal, crashes } = await probe(path, options);
  if (refusal !== undefined) return { refusal: `the addon for ${platformName()} is not used: ${refusal}` };
  const usable = nativeLevels.filter((level) => levels.includes(level));
  const level = typeof choice === 'string' && choice !== 'auto' ? usable.find((each) => each === choice) : usable[0];
  if (level !== undefined) return load(path, level, (isComputing) => crashes?.enter(isComputing) ?? (() => undefined));
  const found = usable.length === 0 ? 'none' : usable.join(', ');
  return choice === 'auto' ? {} : { refusal: `expected the level ${String(choice)}, this machine has ${found}` };
}

function missingAddon(platform: string): string {
  return `there is no addon for ${platform}: install @winnow/native-${platform}, or build one in the repository with npm run native`;
}

function load(path: string, level: NativeLevel, enterCode: (isComputing: boolean) => () => void): NativeResult {
  const leave = enterCode(false);
  try {
    const addon = createRequire(path)(path) as NativeAddon;
    // a verdict may come from another machine that shares the cache folder
    if (!addon.levels().includes(level))
      return { refusal: `the addon was tried on a machine with ${level}, which this one lacks` };
    return { kernels: { level, path, enter: () => enterCode(true), attach: (bytes) => addon.attach(bytes, level) } };
  } catch (error) {
    return { refusal: `the addon cannot be loaded: ${messageOf(error)}` };
  } finally {
    leave();
  }
}

/** Why addons are not tried in this process: another runtime, or a program that a trial would start again. */
function unfitHost(): string | undefined {
  const { electron, bun, deno } = process.versions;
  if (electron !== undefined) return 'native kernels are not used in Electron';
  if (bun !== undefined || deno !== undefined) return 'native kernels need Node';
  // other runtimes lack the module, so it is not imported
  const sea = process.getBuiltinModule('node:sea');
  return sea?.isSea() === true ? 'native kernels are not used in single executable applications' : undefined;
}
