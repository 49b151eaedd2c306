/** TypeBox, for everybody: the build makes one file of this, because its 370 modules take ten times as long to load. */
export * from 'typebox';
