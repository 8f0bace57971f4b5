// A step for a shared library (vars/memgate.groovy):
//   memgate('ctest --test-dir build --output-on-failure')
// The page (HTML Publisher) needs its own script: Jenkins' default content policy forbids every one, so it is also archived.
def call(String command = '') {
    try {
        sh "memgate run ${command ? '-- ' + command : ''}"
    } finally {
        // What fails here does not hide why the tests did.
        sh script: 'memgate report --all memgate-reports', returnStatus: true
        junit testResults: 'memgate-reports/junit.xml', allowEmptyResults: true
        archiveArtifacts artifacts: '.memgate/latest/**, memgate-reports/**', allowEmptyArchive: true
    }
}
