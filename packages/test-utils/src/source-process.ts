/** Arguments for a Node process that runs the workspace's TypeScript sources. */

/** Makes Node resolve `.js` imports to TypeScript sources. */
const resolveSources = `
import { registerHooks } from 'node:module';
registerHooks({
  resolve(specifier, context, next) {
    try {
      return next(specifier, context);
    } catch (error) {
      if (!specifier.endsWith('.js')) throw error;
      return next(specifier.slice(0, -3) + '.ts', context);
    }
  },
});`;

/** Before the path of a script, or before `--input-type=module -e PROGRAM`. */
export const sourceArguments: readonly string[] = [
  '--conditions=@winnow/source',
  '--no-warnings',
  '--import',
  `data:text/javascript,${encodeURIComponent(resolveSources)}`,
];
