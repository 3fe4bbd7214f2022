/** Lets Node run the sources of sibling packages: the condition `@winnow/source`, and `./x.js` for the file `x.ts`. */
import { registerHooks } from 'node:module';

registerHooks({
  resolve(specifier, context, nextResolve) {
    const conditions = [...context.conditions, '@winnow/source'];
    const fromSources = context.parentURL?.endsWith('.ts') === true && specifier.startsWith('.');
    return nextResolve(fromSources ? specifier.replace(/\.js$/, '.ts') : specifier, { ...context, conditions });
  },
});
